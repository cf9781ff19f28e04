-- For a token that does not hold every claim: a claim that another client holds, else whether one
-- is free. An exclusive holder of a claim counts as a reader, too. `any`: holding a share is
-- enough, even if the claim is exclusive.
local function not_held(any)
  local gone = false
  for i = 1, claims do
    if values[i] ~= token and not ((any or shares[i]) and mine[i]) then
      if values[i] and not (shares[i] and values[i] == SHARED) then
        return i, false
      end
      gone = true
    end
  end
  return nil, gone
end
