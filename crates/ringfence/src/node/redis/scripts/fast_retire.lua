-- The usual release: for good, of a claim that this token holds alone. `record` is what its record
-- says; `text` is the ballot as it was sent; `freed_now` is how the record of a claim ends that is free
-- since now. Answers what the record is to say then, and the floor; or nil if the release is not of the
-- usual sort. Writes nothing.
local match, tonumber = string.match, tonumber
local function retired(record, ballot, text, freed_now)
  local fence, closed, hers = match(record, '^2:(%d+):(%d+):%d+:[01]:(%d+):%d+:[^:]+:')
  local last = closed and tonumber(closed)
  -- Whichever token the record names: under a ballot no higher, it changes nothing.
  if hers and (hers == text or tonumber(hers) <= ballot) and ballot <= ceiling
    and (fence == text or tonumber(fence) <= MAX) and last <= MAX then
    local floor = ballot
    -- Writing a number costs more than finding out that its text is known.
    if fence ~= text and tonumber(fence) > ballot then
      floor = tonumber(fence)
    else
      fence = text
    end
    if floor < ground then
      floor, fence = ground, string.format('%.0f', ground)
    end
    return '2:' .. fence .. ':' .. (last > ballot and closed or text) .. freed_now, floor
  end
end
