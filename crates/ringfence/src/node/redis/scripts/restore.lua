-- Restore: a holder with a grant takes its claims again on a node that lost them. ARGV: ballot, ttl
-- in ms, label.
local ballot, ttl, label = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local held = not_held()
if held then
  return or_broken('held', holder(held))
end
-- A late restore must not bring back a lock that its holder released, or that `break` closed.
for i = 1, claims do
  if ballot <= records[i].closed then
    return or_broken('gone')
  end
end
if ballot > ceiling then
  return reply('ahead')
end
local refusal = foreign_type()
for i = 1, claims do
  if values[i] == token or shares[i] and mine[i] then
    refusal = refusal or prolong(i, ballot, ttl)
  else
    refusal = refusal or (shares[i] and share or seat)(i, ballot, label, ttl)
  end
end
return refusal or reply('restored')
