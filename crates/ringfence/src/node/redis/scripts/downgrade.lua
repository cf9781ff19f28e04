-- Downgrade: from exclusive to shared, under the same token. ARGV: ballot, ttl in ms.
local ballot, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])
local asked = shares
shares = {}
for i = 1, claims do
  shares[i] = true
end
local held, gone = not_held()
for i = 1, (held or gone) and 0 or claims do
  local was_alone = values[i] == token
  prolong(i, ballot, ttl)
  if was_alone and lines[i] then
    tell(i, nil, true)
  end
end
for _, id in ipairs(told) do
  wake_client(id, after[id])
end
-- The floor is that of what was asked for.
shares = asked
if held then
  return reply('held', holder(held))
end
return reply(gone and 'gone' or 'downgraded')
