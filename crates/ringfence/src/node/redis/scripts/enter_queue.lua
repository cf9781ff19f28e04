-- Enters or refreshes `tickets` in the wait queue of claim i, for `lease_ms`. `elsewhere`: their
-- clients also wait for another claim, which is held.
local function enter_queue(i, tickets, lease_ms, elsewhere)
  if not open_queue then
    load_queues()
  end
  local queue, shared, added = queues[i] or open_queue(i), shares[i], 0
  local until_ms = string.format('%.0f', now_ms + lease_ms)
  for from = 1, #tickets, BATCH do
    local to = math.min(from + BATCH - 1, #tickets)
    local leases, order = {}, {}
    for j = from, to do
      local n = #order
      leases[n + 1], leases[n + 2] = until_ms, tickets[j]
      order[n + 1], order[n + 2] = '0', tickets[j]
    end
    local new = redis.call('ZADD', queue.lease, unpack(leases))
    if new > 0 then
      redis.call('ZADD', queue.order, unpack(order))
    end
    if elsewhere or queue.elsewhere then
      mark_tickets(queue, 'e', elsewhere, tickets, from, to)
    end
    if shared or queue.shared then
      mark_tickets(queue, 's', shared, tickets, from, to)
    end
    added = added + new
  end
  -- The keys outlive the tickets, so that most refreshes need not extend them.
  if added > 0 or queue.kept_until < now_ms + 2 * lease_ms or elsewhere and not queue.elsewhere
    or shared and not queue.shared then
    queue.elsewhere, queue.shared = queue.elsewhere or elsewhere, queue.shared or shared
    queue.kept_until = now_ms + 4 * lease_ms
    local mark = string.format('%.0f', queue.kept_until) .. (queue.elsewhere and 'e' or '')
      .. (queue.shared and 's' or '') .. (queue.permits[1] and 'p' or '')
      .. table.concat(queue.permits, 'p')
    redis.call('SET', queue.mark, mark, 'PX', 4 * lease_ms)
    redis.call('PEXPIRE', queue.order, 4 * lease_ms)
    redis.call('PEXPIRE', queue.lease, 4 * lease_ms)
  end
end
