-- For a token that does not hold every claim: which claim another holds, else whether one is free.
local function not_held()
  local gone = false
  for i = 1, claims do
    if values[i] and values[i] ~= token then
      return i, false
    end
    gone = gone or not values[i]
  end
  return nil, gone
end
