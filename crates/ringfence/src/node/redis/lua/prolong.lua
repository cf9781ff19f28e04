-- Keeps this token in the seat that it has on claim i, under the higher of the two ballots.
local function prolong(i, ballot, ttl)
  local kept = seated(i) or { ballot = 0, label = '' }
  local higher = ballot <= ceiling and math.max(kept.ballot, ballot) or kept.ballot
  return seat(i, higher, kept.label, ttl)
end
