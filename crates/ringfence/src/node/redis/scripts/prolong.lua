-- Extends this token's lease on claim i, under the higher of the two ballots.
local function prolong(i, ballot, ttl)
  local kept = shares[i] and mine[i] or seated(i) or { ballot = 0, label = '' }
  local higher = ballot <= ceiling and math.max(kept.ballot, ballot) or kept.ballot
  return (shares[i] and share or seat)(i, higher, kept.label, ttl)
end
