-- Inspect: the holders, as far as this node knows. Seven values per claim: 1 if it is held, label,
-- id and remaining ms of the holder, its ballot, the effective fence, and the number of waiters.
local views = reply('views')
for i = 1, claims do
  local label, id, left, _ = false, false, false, nil
  if values[i] then
    _, label, id, left = holder(i)
  end
  local seat, waiting = seated(i), 0
  if values[2 * claims + i] then
    local lease = string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:$QUEUE_LEASES', 1)
    waiting = redis.call('ZCOUNT', lease, string.format('%.0f', now_ms), '+inf')
  end
  local n = #views
  views[n + 1] = values[i] and 1 or 0
  views[n + 2], views[n + 3], views[n + 4] = label, id, left
  views[n + 5] = seat and seat.ballot or false
  views[n + 6] = math.max(records[i].fence, shares[i] and 0 or records[i].read_fence)
  views[n + 7] = waiting
end
return views
