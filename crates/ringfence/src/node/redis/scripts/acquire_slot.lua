-- Acquire a slot of a semaphore. ARGV: ballot, ttl in ms, label, the slot or nothing for any; and if
-- the caller waits: how long a ticket stands in ms, 1 if it was never in line before, its ticket.
-- Answers which slot it is about, a 1 for each slot that is free or the caller's own and a 0 for each
-- other, how many are ahead in line, the largest number of permits, and then what a lock would answer.
local ballot, ttl, label, asked = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local lease_ms, ticket = tonumber(ARGV[9]), ARGV[11]
-- A new ticket may be as old as a round trip; older, its clock is wrong.
local old = ticket and ARGV[10] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock
  and not (lines[1] and redis.call('ZSCORE', lines[1].lease, ticket))

local most, count = tonumber(string.match(values[1] or '', '^%d+$') or 0), claims - 1
if not old then
  -- Only so do those who disagree on the number hear of it.
  if most < count or most == count and redis.call('PTTL', KEYS[1]) < math.floor(ARGV[3] / 2) then
    redis.call('SET', KEYS[1], count, 'PX', ARGV[3])
  end
  if ticket then
    enter_queue(1, { ticket }, lease_ms)
    take_notice(2)
  end
end

local own, map = nil, {}
for i = 2, claims do
  local ours = values[i] == token
  map[i - 1] = (ours or not values[i]) and '1' or '0'
  if ours and not own and (not asked or asked == i - 2) then
    own = i
  end
end
local ahead = not old and lines[1] and ahead_of(1, ticket) or 0

local function permit(slot, ...)
  local record = slot and records[slot + 2]
  return {
    clock, record and record.fence or ground, 'permit', slot or false, table.concat(map), ahead,
    math.max(most, count), ...
  }
end

if old then
  return permit(nil, 'old')
end
local i, passing, since = own, false, 0
if not own then
  -- A slot that the caller named is never replaced by another: its votes would not add up.
  local held = asked or #free == 0 and 0
  if held and values[held + 2] then
    return permit(asked, 'held', holder(held + 2, beyond(ahead)))
  end
  for _, slot in ipairs(free) do
    since = math.max(since, free_since(slot + 2))
  end
  passing = ahead >= #free
  if passing then
    -- The grace stands at the end of born.
    local pass_at = ticket and since + beyond(ahead) * string.match(ARGV[1], '^.* (%d+)$')
    if not pass_at or pass_at > now_ms then
      return permit(asked, 'behind', beyond(ahead), pass_at and pass_at - now_ms or false)
    end
  end
  i = (asked or free[math.min(ahead + 1, #free)]) + 2
end
local seat_now = seated(i)
local hers = seat_now and seat_now.ballot or 0
if not (own and ballot == hers) then
  if ballot < hers or ballot <= records[i].fence then
    return permit(i - 2, 'stale')
  elseif ballot > ceiling then
    return permit(i - 2, 'ahead')
  end
end

local refusal = seat(i, ballot, label, ttl)
if refusal then
  return refusal
end
if ticket then
  -- Whoever has a slot waits no longer: its ticket would keep another from those behind it.
  local gone = { ticket }
  if passing then
    -- Those who were passed and have not been seen since did not come. If they live, they enter
    -- again with the same ticket.
    for _, other in ipairs(redis.call('ZRANGE', lines[1].order, 0, ahead - 1)) do
      if redis.call('ZSCORE', lines[1].lease, other) - lease_ms < since then
        gone[#gone + 1] = other
      end
    end
  end
  drop(1, gone)
end
return permit(i - 2, 'granted')
