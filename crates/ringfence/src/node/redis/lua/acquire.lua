-- Acquire: all claims, or none. ARGV: ballot, ttl in ms, label.
local ballot, ttl, label = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local stale, ahead = false, false
for i = 1, claims do
  local ours = value(i) == token
  if value(i) and not ours then
    return reply('held', holder(i))
  end
  if ours and ballot < seated(i) then
    stale = true
  elseif not (ours and ballot == seated(i)) then
    stale = stale or ballot <= effective_fence(i)
    ahead = ahead or ballot > ceiling
  end
end
if stale then
  return reply('stale')
end
if ahead then
  return reply('ahead')
end
local refusal = foreign_type()
for i = 1, claims do
  refusal = refusal or seat(i, ballot, label, ttl)
end
return refusal or reply('granted')
