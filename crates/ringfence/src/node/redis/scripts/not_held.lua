-- For a token that does not hold every claim: which claim another holds, else whether one is free.
-- Whoever holds a claim alone has its share too; `any`: a share is enough, whatever was claimed.
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
