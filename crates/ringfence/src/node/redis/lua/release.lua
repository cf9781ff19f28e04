-- Release: a holder is done, or an attempt is withdrawn.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
-- A late undo of an earlier attempt must not delete the key of a later one.
for i = 1, claims do
  if values[i] == token and records[i].ballot > ballot then
    return reply('newer')
  end
end
local held, gone = not_held()
for i = 1, claims do
  local ours, record = values[i] == token, records[i]
  -- Retiring always would let pollers starve everyone else: against an absent key the fence rises
  -- only if the acquire may still be on its way.
  if ours or final or fate_unknown then
    local key_left = 0
    if ours then
      redis.call('DEL', KEYS[i])
      record.owner = nil
    elseif values[i] then
      key_left = redis.call('PTTL', KEYS[i])
    end
    if final and ballot <= ceiling then
      record.closed = math.max(record.closed, ballot)
    end
    write(i, (ours or fate_unknown) and ballot or 0, key_left)
  end
end
if held then
  return reply('held', holder(held))
end
return reply(gone and 'gone' or 'released')
