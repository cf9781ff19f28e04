-- The tickets in the queue of a semaphore whose turn it is, in order, and the first of the others
-- that could use a free slot. As in slot_queue.lua, from the view of each ticket. Of each number of
-- permits one more ticket is looked at than slots are free for it.
local function served()
  local queue, tickets, permits_of = queues[1], {}, {}
  for _, number in ipairs(queue and queue.permits or {}) do
    local count, found = usable(number), nil
    if count > 0 and queue.permits[2] then
      local prefix = string.format('p%03d', number)
      found = redis.call('ZRANGE', queue.order, '[' .. prefix, '(' .. prefix .. ':', 'BYLEX',
        'LIMIT', 0, count + 1)
    elseif count > 0 then
      found = redis.call('ZRANGE', queue.order, 0, count)
    end
    for _, ticket in ipairs(found or {}) do
      ticket = queue.permits[2] and string.sub(ticket, 5) or ticket
      tickets[#tickets + 1], permits_of[ticket] = ticket, number
    end
  end
  table.sort(tickets)
  local turns, following, ahead = {}, nil, {}
  for _, ticket in ipairs(tickets) do
    local own, count = permits_of[ticket], 0
    for _, number in ipairs(queue.permits) do
      count = count + (ahead[number] or 0)
      if number < own then
        count = math.min(count, usable(number))
      end
    end
    if count < usable(own) then
      turns[#turns + 1] = ticket
    else
      following = following or ticket
    end
    ahead[own] = (ahead[own] or 0) + 1
  end
  return turns, following, permits_of
end

-- The tickets whose turn it was `before` the call, as keys.
local before = {}
for _, ticket in ipairs(served()) do
  before[ticket] = true
end

-- Wakes the waiters whose turn it is now and was not before, and the next one, which retries after
-- the grace. Never `sender`. Each wake names a slot that was freed and that its waiter can use: if
-- each node picked a slot, nodes that received other releases meanwhile would pick different slots,
-- and no slot would get a majority.
local function wake_served(freed, sender)
  for _, slot in ipairs(freed) do
    free[#free + 1] = slot
  end
  table.sort(free)
  local turns, following, permits_of = served()
  local woken = false
  for _, ticket in ipairs(turns) do
    if not before[ticket] and ticket ~= sender then
      local slot
      for j, number in ipairs(freed) do
        if number < permits_of[ticket] then
          slot = table.remove(freed, j)
          break
        end
      end
      wake_client(ticket, '0', slot)
      woken = true
    end
  end
  if woken and following and following ~= sender then
    -- The grace is the last field of born.
    wake_client(following, string.match(ARGV[1], '^.* (%d+)$'))
  end
end
