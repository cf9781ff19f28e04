-- Enters or refreshes `tickets` in the wait queue of claim i, for `lease_ms`. `elsewhere`: they also
-- wait for another claim, which is held.
local function enter_queue(i, tickets, lease_ms, elsewhere)
  if not open then
    look_at_lines()
  end
  local line, shared, added = lines[i] or open(i), shares[i], 0
  local until_ms = string.format('%.0f', now_ms + lease_ms)
  for from = 1, #tickets, BATCH do
    local to = math.min(from + BATCH - 1, #tickets)
    local leases, order = {}, {}
    for j = from, to do
      local n = #order
      leases[n + 1], leases[n + 2] = until_ms, tickets[j]
      order[n + 1], order[n + 2] = '0', tickets[j]
    end
    local new = redis.call('ZADD', line.lease, unpack(leases))
    if new > 0 then
      redis.call('ZADD', line.order, unpack(order))
    end
    if elsewhere or line.elsewhere then
      again(line, 'e', elsewhere, tickets, from, to)
    end
    if shared or line.shared then
      again(line, 's', shared, tickets, from, to)
    end
    added = added + new
  end
  -- The sets are kept for longer than a ticket, so that not every refresh has to say so again.
  if added > 0 or line.kept_until < now_ms + 2 * lease_ms or elsewhere and not line.elsewhere
    or shared and not line.shared then
    line.elsewhere, line.shared = line.elsewhere or elsewhere, line.shared or shared
    line.kept_until = now_ms + 4 * lease_ms
    local mark = string.format('%.0f', line.kept_until) .. (line.elsewhere and 'e' or '')
      .. (line.shared and 's' or '')
    redis.call('SET', line.mark, mark, 'PX', 4 * lease_ms)
    redis.call('PEXPIRE', line.order, 4 * lease_ms)
    redis.call('PEXPIRE', line.lease, 4 * lease_ms)
  end
end
