-- Enters or refreshes `tickets` in every line, for `lease_ms`. One that also waits for a name that
-- somebody other than `who` holds cannot come to the others, and must not be passed there as if it
-- were dead.
local function enter(who, tickets, lease_ms)
  if not open then
    look_at_lines()
  end
  local held = 0
  local function blocked(i)
    return values[i] and values[i] ~= who and not (shares[i] and values[i] == SHARED)
  end
  for i = 1, claims do
    held = held + (blocked(i) and 1 or 0)
  end
  local until_ms = string.format('%.0f', now_ms + lease_ms)
  for i = 1, claims do
    local line = lines[i] or open(i)
    local elsewhere = held > (blocked(i) and 1 or 0)
    local added = 0
    for from = 1, #tickets, BATCH do
      local to = math.min(from + BATCH - 1, #tickets)
      local leases, order, twice, again, shared = {}, {}, {}, {}, {}
      for j = from, to do
        local n = #order
        leases[n + 1], leases[n + 2] = until_ms, tickets[j]
        order[n + 1], order[n + 2] = '0', tickets[j]
        twice[n + 1], twice[n + 2] = '0', 'e' .. tickets[j]
        again[#again + 1] = 'e' .. tickets[j]
        shared[n + 1], shared[n + 2] = '0', 's' .. tickets[j]
      end
      local new = redis.call('ZADD', line.lease, unpack(leases))
      if new > 0 then
        redis.call('ZADD', line.order, unpack(order))
      end
      if elsewhere then
        redis.call('ZADD', line.order, unpack(twice))
      elseif line.elsewhere then
        redis.call('ZREM', line.order, unpack(again))
      end
      if shares[i] then
        redis.call('ZADD', line.order, unpack(shared))
      elseif line.shared then
        for j = from, to do
          redis.call('ZREM', line.order, 's' .. tickets[j])
        end
      end
      added = added + new
    end
    -- The sets are kept for longer than a ticket, so that not every refresh has to say so again.
    if added > 0 or line.kept_until < now_ms + 2 * lease_ms or elsewhere and not line.elsewhere
      or shares[i] and not line.shared then
      line.elsewhere = line.elsewhere or elsewhere
      line.shared = line.shared or shares[i]
      line.kept_until = now_ms + 4 * lease_ms
      local mark = string.format('%.0f', line.kept_until) .. (line.elsewhere and 'e' or '')
        .. (line.shared and 's' or '')
      redis.call('SET', line.mark, mark, 'PX', 4 * lease_ms)
      redis.call('PEXPIRE', line.order, 4 * lease_ms)
      redis.call('PEXPIRE', line.lease, 4 * lease_ms)
    end
    -- Writes down what a caller in line found: that a stranger holds, or that a holder is gone. Only
    -- then does the time that lets others pass a dead head begin to run.
    local record = records[i]
    local stranger = values[i] and not seated(i)
    local vacated = not values[i] and (record.seat or record.stranger)
    if vacated or stranger and not record.stranger then
      write(i, 0, values[i] and redis.call('PTTL', KEYS[i]) or 0, nil)
    end
  end
end
