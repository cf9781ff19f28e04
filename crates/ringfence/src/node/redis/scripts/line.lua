-- The wait queue of each claim, earliest ticket first. A ticket is a lease: it ends when its client
-- stops refreshing it.
--
-- A ticket is written as its time in 20 digits, its id, a newline and the label of its client, so that
-- tickets sort as text. Two sorted sets hold the tickets. `order` sorts them by text; it also
-- contains the ticket with the prefix `e` if its client waits for another name that is held, with
-- the prefix `s` if it wants to share the claim, and in a semaphore whose clients disagree with `p`
-- and the number of its client's permits in three digits. `lease` sorts them by the last millisecond
-- of each ticket. The mark says that a queue may exist, so that most calls need not look for one. It
-- contains the time until which the sets are kept, `e` or `s` if `order` may contain tickets with
-- that prefix, and of a semaphore `p` before each number of permits of its clients. All three keys
-- expire.
local queues = {}
-- How many arguments go into one command: Lua's stack is bounded.
local BATCH = 500
local open_queue, mark_tickets, remove_tickets, ahead_of

-- Defines the functions below and removes expired tickets. Creating a function costs time even if
-- it is not called, and most locks have no queue.
local function load_queues()
  function open_queue(i)
    local mark = KEYS[2 * claims + i]
    local kept, elsewhere, shared, numbers =
      string.match(values[2 * claims + i] or '', '^(%d+)(e?)(s?)([p%d]*)$')
    queues[i] = {
      mark = mark,
      order = (string.gsub(mark, '}:$QUEUE_MARK', '}:$QUEUE_ORDER', 1)),
      lease = (string.gsub(mark, '}:$QUEUE_MARK', '}:$QUEUE_LEASES', 1)),
      kept_until = tonumber(kept or 0),
      elsewhere = elsewhere == 'e',
      shared = shared == 's',
      permits = {},
    }
    for number in string.gmatch(numbers or '', '%d+') do
      table.insert(queues[i].permits, tonumber(number))
    end
    return queues[i]
  end

  -- Adds the tickets with this prefix to `order`, or removes them.
  function mark_tickets(queue, prefix, add, tickets, from, to)
    local members = {}
    for j = from, to do
      if add then
        members[#members + 1] = '0'
      end
      members[#members + 1] = prefix .. tickets[j]
    end
    redis.call(add and 'ZADD' or 'ZREM', queue.order, unpack(members))
  end

  function remove_tickets(i, tickets)
    local queue = queues[i]
    for from = 1, #tickets, BATCH do
      local to = math.min(from + BATCH - 1, #tickets)
      redis.call('ZREM', queue.lease, unpack(tickets, from, to))
      redis.call('ZREM', queue.order, unpack(tickets, from, to))
      if queue.elsewhere then
        mark_tickets(queue, 'e', false, tickets, from, to)
      end
      if queue.shared then
        mark_tickets(queue, 's', false, tickets, from, to)
      end
      for _, number in ipairs(queue.permits[2] and queue.permits or {}) do
        mark_tickets(queue, string.format('p%03d', number), false, tickets, from, to)
      end
    end
    if redis.call('EXISTS', queue.lease) == 0 then
      redis.call('DEL', queue.mark, queue.order)
      queues[i], values[2 * claims + i] = nil, false
    end
  end

  -- How many tickets in the queue of claim i block `ticket`: those ahead of it, or all if it is
  -- nil. Tickets of readers do not block readers.
  function ahead_of(i, ticket)
    local queue = queues[i]
    if not queue then
      return 0
    end
    local all = ticket and redis.call('ZRANK', queue.order, ticket)
      or redis.call('ZCARD', queue.lease)
    if shares[i] and queue.shared then
      return all - redis.call('ZLEXCOUNT', queue.order, '[s', ticket and '(s' .. ticket or '(t')
    end
    return all
  end

  for i = 1, claims do
    if values[2 * claims + i] then
      local expired =
        redis.call('ZRANGEBYSCORE', open_queue(i).lease, '-inf', string.format('(%.0f', now_ms))
      if #expired > 0 then
        remove_tickets(i, expired)
      end
    end
  end
end

for i = 1, claims do
  if values[2 * claims + i] then
    load_queues()
    break
  end
end
