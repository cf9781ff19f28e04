-- The usual release: final, of a claim that this token holds exclusively. `record` is the stored
-- record; `text` is the ballot as it was sent; `freed_now` is the end of the record of a claim that
-- is free from now on. Returns the new record and the floor, or nil if the release is unusual.
-- Writes nothing.
local match, tonumber = string.match, tonumber
local function retired(record, ballot, text, freed_now)
  local fence, closed, seat_ballot = match(record, '^2:(%d+):(%d+):%d+:[01]:(%d+):%d+:[^:]+:')
  local last = closed and tonumber(closed)
  -- If the seat belongs to another token, its ballot is no higher and the result is the same.
  if seat_ballot and (seat_ballot == text or tonumber(seat_ballot) <= ballot) and ballot <= ceiling
    and (fence == text or tonumber(fence) <= MAX) and last <= MAX then
    local floor = ballot
    -- Formatting a number costs more than comparing texts.
    if fence ~= text and tonumber(fence) > ballot then
      floor = tonumber(fence)
    else
      fence = text
    end
    if floor < min_fence then
      floor, fence = min_fence, string.format('%.0f', min_fence)
    end
    return '2:' .. fence .. ':' .. (last > ballot and closed or text) .. freed_now, floor
  end
end
