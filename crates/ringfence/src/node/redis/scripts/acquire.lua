-- Acquire: all claims, or none. ARGV: ballot, ttl in ms, label; and if the caller waits: how long a
-- ticket stands in ms, 1 if it was never in line before, its ticket.
local ballot, ttl, label = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local lease_ms, ticket = tonumber(ARGV[8]), ARGV[10]
-- A new ticket may be as old as a round trip; older, its clock is wrong.
if ticket and ARGV[9] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock then
  for i = 1, claims do
    if not lines[i] or not redis.call('ZSCORE', lines[i].lease, ticket) then
      return reply('old')
    end
  end
end
if ticket then
  enter(token, { ticket }, lease_ms)
end

local behind, behind_for, stale, ahead = nil, false, false, false
for i = 1, claims do
  local ours = values[i] == token or shares[i] and mine[i]
  local queue = not ours and lines[i] and ahead_of(i, ticket) or 0
  if values[i] and not ours and not (shares[i] and values[i] == SHARED) then
    return reply('held', holder(i, queue))
  end
  local pass_at = 0
  if queue > 0 then
    -- Those ahead have their time to come, unless they wait for another name; without a ticket
    -- nobody passes them, nor while others share the claim: those ahead are not dead, but cannot
    -- come. The grace stands at the end of born.
    pass_at = nil
    local line = lines[i]
    if ticket and not values[i] and not (line.elsewhere
        and redis.call('ZLEXCOUNT', line.order, '[e', '(e' .. ticket) > 0) then
      pass_at = free_since(i) + queue * string.match(ARGV[1], '^.* (%d+)$')
    end
  end
  local seat = shares[i] and mine[i] or seated(i)
  local hers = seat and seat.ballot or 0
  if not pass_at or pass_at > now_ms then
    if not behind then
      behind, behind_for = queue, pass_at and pass_at - now_ms
    end
  elseif ours and ballot < hers then
    stale = true
  elseif not (ours and ballot == hers) then
    if ballot <= math.max(records[i].fence, shares[i] and 0 or records[i].read_fence) then
      stale = true
    elseif ballot > ceiling then
      ahead = true
    end
  end
end
if behind then
  return reply('behind', behind, behind_for or false)
end
if stale then
  return reply('stale')
end
if ahead then
  return reply('ahead')
end

local refusal = foreign_type()
for i = 1, claims do
  -- Those who were passed, in the way and not seen since the claim became free did not come. If they
  -- live, they enter again with the same ticket.
  local queue = ticket and ahead_of(i, ticket) or 0
  local gone, since = { ticket }, queue > 0 and free_since(i)
  refusal = refusal or (shares[i] and share or seat)(i, ballot, label, ttl)
  if queue > 0 and not refusal then
    local rank = redis.call('ZRANK', lines[i].order, ticket)
    for _, other in ipairs(redis.call('ZRANGE', lines[i].order, 0, rank - 1)) do
      local beside = shares[i] and lines[i].shared
        and redis.call('ZSCORE', lines[i].order, 's' .. other)
      if not beside and redis.call('ZSCORE', lines[i].lease, other) - lease_ms < since then
        gone[#gone + 1] = other
      end
    end
  end
  -- A holder waits no longer: its ticket would stand in the way of others.
  if ticket and not refusal then
    drop(i, gone)
  end
end
return refusal or reply('granted')
