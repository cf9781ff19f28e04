-- Extend: only claims that this token still holds, and never to a shorter time. ARGV: ballot, ttl
-- in ms, and of a receipt its lock delay in ms.
local ballot, ttl, delay = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7] or 0)
for i = 1, claims do
  if in_delay(i, delay) then
    return or_broken('gone')
  end
end
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
