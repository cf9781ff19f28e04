-- Restore: a holder with a grant takes its claims again on a node that lost them. ARGV: ballot, ttl
-- in ms, label.
local ballot, ttl, label = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
-- A promoted replica may have an older holder, because it lacks that holder's release. While this
-- server is in quarantine, a restore replaces it: its ballot is lower. A value without a ballot, of
-- another library, is never replaced.
local outdated, stored = {}, {}
for i = 1, claims do
  local seat_now, own = seated(i), values[i] == token
  local conflicts = values[i] and not own and not (shares[i] and values[i] == SHARED)
  if clock < grants_from and conflicts and seat_now and seat_now.ballot < ballot then
    outdated[i], stored[i], values[i] = true, values[i], false
  end
end
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
-- MGET showed the outdated holders as strings, so none of their keys is of another type.
for i = 1, claims do
  values[i] = values[i] or stored[i] or false
end
local refusal = foreign_type()
for i = 1, claims do
  if outdated[i] and not refusal then
    redis.call('DEL', KEYS[i])
    values[i] = false
  end
  if values[i] == token or shares[i] and mine[i] then
    refusal = refusal or prolong(i, ballot, ttl)
  else
    refusal = refusal or (shares[i] and share or seat)(i, ballot, label, ttl)
  end
end
return refusal or reply('restored')
