-- Extend: only claims that this token still holds, and never to a shorter time. ARGV: ballot, ttl
-- in ms.
local ballot, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])
local held, gone = not_held()
-- A reader that finds another holder has lost its share.
if held and not shares[held] then
  return or_broken('held', holder(held))
end
if held or gone then
  return or_broken('gone')
end
for i = 1, claims do
  prolong(i, ballot, ttl)
end
return reply('extended')
