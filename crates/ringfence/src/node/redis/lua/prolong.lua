-- Keeps this token in the seat that it has on claim i, under the higher of the two ballots.
local function prolong(i, ballot, ttl)
  local kept = records[i].ballot
  if ballot <= ceiling then
    kept = math.max(kept, ballot)
  end
  return seat(i, kept, records[i].label or '', ttl)
end
