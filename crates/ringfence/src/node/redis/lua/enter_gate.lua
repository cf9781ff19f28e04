-- Enters or refreshes `tickets` in the line at the gate, for `lease_ms`.
local function enter_gate(tickets, lease_ms)
  if not open then
    look_at_lines()
  end
  local line, added = lines[1] or open(1), 0
  local until_ms = string.format('%.0f', now_ms + lease_ms)
  for from = 1, #tickets, BATCH do
    local leases, order = {}, {}
    for j = from, math.min(from + BATCH - 1, #tickets) do
      local n = #order
      leases[n + 1], leases[n + 2] = until_ms, tickets[j]
      order[n + 1], order[n + 2] = '0', tickets[j]
    end
    local new = redis.call('ZADD', line.lease, unpack(leases))
    if new > 0 then
      redis.call('ZADD', line.order, unpack(order))
    end
    added = added + new
  end
  -- The sets are kept for longer than a ticket, so that not every refresh has to say so again.
  if added > 0 or line.kept_until < now_ms + 2 * lease_ms then
    line.kept_until = now_ms + 4 * lease_ms
    redis.call('SET', line.mark, string.format('%.0f', line.kept_until), 'PX', 4 * lease_ms)
    redis.call('PEXPIRE', line.order, 4 * lease_ms)
    redis.call('PEXPIRE', line.lease, 4 * lease_ms)
  end
end

-- Writes down what a caller in line found at the slots: that a stranger holds, or that a holder is
-- gone. Only then does the time that lets others pass a dead head begin to run.
local function take_notice()
  for i = 2, claims do
    local record = records[i]
    local stranger = values[i] and not seated(i)
    local vacated = not values[i] and (record.seat or record.stranger)
    if vacated or stranger and not record.stranger then
      write(i, 0, values[i] and redis.call('PTTL', KEYS[i]) or 0, nil)
    end
  end
end
