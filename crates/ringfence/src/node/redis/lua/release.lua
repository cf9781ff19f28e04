-- Release: a holder is done, or an attempt is withdrawn.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
-- A late undo of an earlier attempt must not delete the key of a later one.
for i = 1, claims do
  if value(i) == token and seated(i) > ballot then
    return reply('newer')
  end
end
local held, gone = not_held()
-- What is said of the holder must be read before its record is written.
local in_the_way = held and { holder(held) }
for i = 1, claims do
  local ours, record = value(i) == token, records[i]
  -- Retiring always would let pollers starve everyone else: against an absent key the fence rises
  -- only if the acquire may still be on its way.
  if ours or final or fate_unknown then
    local key_left = 0
    if ours then
      redis.call('DEL', lock_key(i))
      record = { closed = record.closed }
    elseif value(i) then
      key_left = left(i)
    end
    local closed = record.closed
    if final and ballot <= ceiling then
      closed = math.max(closed, ballot)
    end
    local raise = (ours or fate_unknown) and ballot or 0
    write(i, raise, closed, record.ballot, record.token, record.label, key_left)
  end
end
if in_the_way then
  return reply('held', unpack(in_the_way))
end
return reply(gone and 'gone' or 'released')
