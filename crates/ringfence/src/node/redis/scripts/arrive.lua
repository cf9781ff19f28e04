-- Arrive at a latch. ARGV: how long it is kept in ms, how many it waits for, when it was made in us or
-- nothing if the caller does not know, then the parties.
local ttl, count, since = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if since and since > ceiling then
  -- A latch from the future would make nodes count that are too young for it.
  return reply('ahead')
end
-- A node that knows nothing of the latch takes nobody, unless it is told when the latch was made.
if not (made or since) or not ARGV[8] then
  return arrivals(true)
end
made = math.min(made or since, since or made)
local stamp, grown, BATCH = string.format('%.0f', made), 0, 500
for from = 8, #ARGV, BATCH do
  local scored = {}
  for j = from, math.min(from + BATCH - 1, #ARGV) do
    local n = #scored
    scored[n + 1], scored[n + 2] = stamp, ARGV[j]
  end
  grown = grown + redis.call('ZADD', KEYS[1], 'LT', unpack(scored))
end
keep(ttl)
if grown > 0 and values[3] and redis.call('ZCARD', KEYS[1]) >= count then
  -- Enough are here, as far as this node knows: tells all who wait. Whoever is told leaves the line,
  -- and comes back if it has to wait for more.
  local order = string.gsub(KEYS[3], '}:$QUEUE_MARK', '}:$QUEUE_ORDER', 1)
  local lease = string.gsub(KEYS[3], '}:$QUEUE_MARK', '}:$QUEUE_LEASES', 1)
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', lease, string.format('%.0f', now_ms), '+inf')) do
    wake_client(string.sub(ticket, 21), '0')
  end
  redis.call('DEL', KEYS[3], order, lease)
end
return arrivals(true)
