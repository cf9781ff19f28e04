-- Downgrade: from exclusive to shared, under the same token. ARGV: ballot, ttl in ms.
local ballot, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])
local requested = shares
shares = {}
for i = 1, claims do
  shares[i] = true
end
local held, gone = not_held()
for i = 1, (held or gone) and 0 or claims do
  local was_exclusive = values[i] == token
  prolong(i, ballot, ttl)
  if was_exclusive and queues[i] then
    wake_first(i, nil, true)
  end
end
for _, other in ipairs(woken) do
  wake_client(other, delays[other])
end
-- The floor in the reply is that of the modes that the caller sent.
shares = requested
if held then
  return or_broken('held', holder(held))
elseif gone then
  return or_broken('gone')
end
return reply('downgraded')
