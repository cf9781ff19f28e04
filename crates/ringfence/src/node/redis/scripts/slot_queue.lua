-- The wait queue of a semaphore. Its clients may disagree on the number of permits: then `order` also
-- has each ticket behind `p` and that number (line.lua).
local permits = claims - 1

-- Enters or refreshes `tickets` of a client with this number of permits, for `lease_ms`.
local function enter_slot_queue(tickets, lease_ms)
  if not open_queue then
    load_queues()
  end
  local queue = queues[1] or open_queue(1)
  local numbers, known = queue.permits, false
  for _, number in ipairs(numbers) do
    known = known or number == permits
  end
  if not known then
    if #numbers == 1 then
      -- The clients disagree from now on. All tickets in the queue are of the one number.
      local others = redis.call('ZRANGE', queue.lease, 0, -1)
      for from = 1, #others, BATCH do
        local to = math.min(from + BATCH - 1, #others)
        mark_tickets(queue, string.format('p%03d', numbers[1]), true, others, from, to)
      end
    end
    table.insert(numbers, permits)
    table.sort(numbers)
    -- The mark is written anew.
    queue.kept_until = 0
  end
  enter_queue(1, tickets, lease_ms)
  for from = 1, numbers[2] and #tickets or 0, BATCH do
    local to = math.min(from + BATCH - 1, #tickets)
    for _, number in ipairs(numbers) do
      mark_tickets(queue, string.format('p%03d', number), number == permits, tickets, from, to)
    end
  end
end

-- How many waiters ahead of `ticket` count, or of all waiters without one. Those with fewer permits
-- than the caller count only as far as there are free slots that they can use.
local function slots_ahead(ticket)
  local queue = queues[1]
  if not queue then
    return 0
  end
  local count = 0
  for _, number in ipairs(queue.permits) do
    local waiters
    if queue.permits[2] then
      local prefix = string.format('p%03d', number)
      waiters = redis.call('ZLEXCOUNT', queue.order, '[' .. prefix,
        '(' .. prefix .. (ticket or ':'))
    else
      waiters = ahead_of(1, ticket)
    end
    count = count + waiters
    if number < permits then
      count = math.min(count, usable(number))
    end
  end
  return count
end

-- How many of the waiters ahead must leave before it is the caller's turn, not counting those that
-- the free slots serve.
local function beyond(ahead)
  return math.max(ahead - math.max(#free, 1) + 1, 0)
end
