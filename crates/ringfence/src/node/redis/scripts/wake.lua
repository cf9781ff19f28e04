-- The tickets to wake, and the delay of each: the shortest, if it is in several queues.
local woken, delays = {}, {}

-- Claim i is free: wakes the first waiter, or all readers at the front of the queue, and the next
-- waiter, which retries after the grace in case they do not. Wakes no waiter if the first ticket is
-- the sender's own, since the sender retries. `readers`: the claim is free for readers only.
local function wake_first(i, sender, readers)
  local queue, grace = queues[i], string.match(ARGV[1], '^.* (%d+)$')
  local share = queue.shared and redis.call('ZRANGE', queue.order, '[s', '(t', 'BYLEX') or {}
  local first = redis.call('ZRANGE', queue.order, 0, math.max(#share, 1))
  if sender and first[1] == sender then
    return
  end
  local leading = 0
  while share[leading + 1] and share[leading + 1] == 's' .. first[leading + 1] do
    leading = leading + 1
  end
  local count = readers and leading or math.max(leading + 1, 2)
  for j = 1, math.min(count, #first) do
    local other = first[j]
    if other ~= sender and string.match(other, '^%d') then
      local wait = j <= leading and 0 or (j - 1) * grace
      if not delays[other] then
        woken[#woken + 1] = other
      end
      delays[other] = math.min(delays[other] or wait, wait)
    end
  end
end
