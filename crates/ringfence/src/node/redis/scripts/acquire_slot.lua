-- Acquire a slot of a semaphore. ARGV: ballot, ttl in ms, label, the slot or nothing for any slot;
-- and if the caller waits: the lease of a ticket in ms, 1 if the ticket was never in the queue
-- before, the ticket.
-- Returns the slot that the answer is about, a 1 for each slot that is free or the caller's own and
-- a 0 for each other, how many waiters ahead count, the largest number of permits, and then the
-- answer of a lock.
local ballot, ttl, label, asked = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local lease_ms, ticket = tonumber(ARGV[9]), ARGV[11]
-- A new ticket may be as old as a round trip. If it is older, the clock that stamped it is wrong.
local old = ticket and ARGV[10] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock
  and not (queues[1] and redis.call('ZSCORE', queues[1].lease, ticket))

local most, count = tonumber(string.match(values[1] or '', '^%d+$') or 0), claims - 1
if not old then
  -- Clients that disagree on the number of permits learn of it from this value.
  if most < count or most == count and redis.call('PTTL', KEYS[1]) < math.floor(ARGV[3] / 2) then
    redis.call('SET', KEYS[1], count, 'PX', ARGV[3])
  end
  if ticket then
    enter_slot_queue({ ticket }, lease_ms)
    note_changes(2)
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
local ahead = not old and slots_ahead(ticket) or 0

local function permit(slot, ...)
  local record = slot and records[slot + 2]
  return {
    clock, record and record.fence or min_fence, 'permit', slot or false, table.concat(map), ahead,
    math.max(most, count), ...
  }
end

if old then
  return permit(nil, 'old')
end
-- See acquire.lua.
if clock < grants_from then
  return permit(nil, 'quarantined', math.ceil((grants_from - clock) / 1000))
end
local i, passing, since = own, false, 0
if not own then
  -- Never replace a slot that the caller named by another: the votes would be for different slots.
  local held = asked or #free == 0 and 0
  if held and values[held + 2] then
    return permit(asked, 'held', holder(held + 2, beyond(ahead)))
  end
  for _, slot in ipairs(free) do
    since = math.max(since, free_since(slot + 2))
  end
  passing = ahead >= #free
  if passing then
    -- The grace is the last field of born.
    local pass_at = ticket and since + beyond(ahead) * string.match(ARGV[1], '^.* (%d+)$')
    if not pass_at or pass_at > now_ms then
      return permit(asked, 'behind', beyond(ahead), pass_at and pass_at - now_ms or false)
    end
  end
  i = (asked or free[math.min(ahead + 1, #free)]) + 2
end
local seat_now = seated(i)
local seat_ballot = seat_now and seat_now.ballot or 0
if not (own and ballot == seat_ballot) then
  if ballot < seat_ballot or ballot <= records[i].fence then
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
  -- A holder of a slot leaves the queue: its ticket would block the waiters behind it.
  local gone = { ticket }
  if passing then
    -- Remove the passed tickets that were not refreshed since the slot became free. If such a
    -- client is alive, it enters the queue again with the same ticket.
    local rank = redis.call('ZRANK', queues[1].order, ticket)
    for _, other in ipairs(redis.call('ZRANGE', queues[1].order, 0, rank - 1)) do
      if redis.call('ZSCORE', queues[1].lease, other) - lease_ms < since then
        gone[#gone + 1] = other
      end
    end
  end
  remove_tickets(1, gone)
end
return permit(i - 2, 'granted')
