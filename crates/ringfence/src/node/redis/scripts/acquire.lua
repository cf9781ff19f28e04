-- Acquire: all claims, or none. ARGV: ballot, ttl in ms, label; and if the caller waits: the lease
-- of a ticket in ms, 1 if the ticket was never in the queue before, the ticket.
local ballot, ttl, label = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local lease_ms, ticket = tonumber(ARGV[8]), ARGV[10]
-- A new ticket may be as old as a round trip. If it is older, the clock that stamped it is wrong.
if ticket and ARGV[9] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock then
  for i = 1, claims do
    if not queues[i] or not redis.call('ZSCORE', queues[i].lease, ticket) then
      return reply('old')
    end
  end
end
if ticket then
  enter(token, { ticket }, lease_ms)
end
-- The server may have lost locks. A grant would be in the way of a holder that puts its lock back.
if clock < grants_from then
  return reply('quarantined', math.ceil((grants_from - clock) / 1000))
end

local behind, behind_for, stale, ahead = nil, false, false, false
for i = 1, claims do
  local ours = values[i] == token or shares[i] and mine[i]
  local before_us = not ours and queues[i] and ahead_of(i, ticket) or 0
  if values[i] and not ours and not (shares[i] and values[i] == SHARED) then
    return reply('held', holder(i, before_us))
  end
  local pass_at = 0
  if before_us > 0 then
    -- The waiters ahead have a grace each to take the claim. They are not passed while one of them
    -- waits for another name or while readers share the claim, since then they are alive but cannot
    -- take it. A caller without a ticket never passes. The grace is the last field of born.
    pass_at = nil
    local queue = queues[i]
    if ticket and not values[i] and not (queue.elsewhere
        and redis.call('ZLEXCOUNT', queue.order, '[e', '(e' .. ticket) > 0) then
      pass_at = free_since(i) + before_us * string.match(ARGV[1], '^.* (%d+)$')
    end
  end
  local seat = shares[i] and mine[i] or seated(i)
  local seat_ballot = seat and seat.ballot or 0
  if not pass_at or pass_at > now_ms then
    if not behind then
      behind, behind_for = before_us, pass_at and pass_at - now_ms
    end
  elseif ours and ballot < seat_ballot then
    stale = true
  elseif not (ours and ballot == seat_ballot) then
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
  -- Remove the passed tickets that blocked the caller and were not refreshed since the claim became
  -- free. If such a client is alive, it enters the queue again with the same ticket.
  local before_us = ticket and ahead_of(i, ticket) or 0
  local gone, since = { ticket }, before_us > 0 and free_since(i)
  -- Without a ticket the caller found the claim free and without waiters, until now.
  local found_free = not ticket and not values[i] and now_ms or nil
  refusal = refusal or (shares[i] and share or seat)(i, ballot, label, ttl, found_free)
  if before_us > 0 and not refusal then
    local rank = redis.call('ZRANK', queues[i].order, ticket)
    for _, other in ipairs(redis.call('ZRANGE', queues[i].order, 0, rank - 1)) do
      local fellow_reader = shares[i] and queues[i].shared
        and redis.call('ZSCORE', queues[i].order, 's' .. other)
      if not fellow_reader and redis.call('ZSCORE', queues[i].lease, other) - lease_ms < since then
        gone[#gone + 1] = other
      end
    end
  end
  -- A holder leaves the queue: its ticket would block other waiters.
  if ticket and not refusal then
    remove_tickets(i, gone)
  end
end
return refusal or reply('granted')
