-- The usual final release of a claim that this token holds exclusively. `record` is the stored
-- record; `ballot` is the text that was sent. If nothing of the hold is under way, the key is
-- deleted and nothing is written: `is_latest` finds out whether the hold has the latest ballot that
-- the claim accepted. Then its own ballot in the record is no higher.
local byte, find = string.byte, string.find
local function is_latest(record, ballot)
  return find(record, ballot, 3, true) == 3 and byte(record, 1) == $VERSION_BYTE
    and byte(record, 3 + #ballot) == 58
end

-- If something may still be under way (`closes`), or tickets are in the queue, the record is
-- written: the claim is free from `now` on. Returns the new record, or nil if the release is unusual:
-- the ballot of the seat or the fence is higher, or the record is damaged. The floor is then that of
-- `is_latest`: the ballot, or the lowest fence that the clock allows.
local function retired(record, ballot, closes)
  local fence, closed, seat_ballot = match(record, '$RECORD_BALLOTS')
  local number = ballot + 0
  -- If the seat belongs to another token, its ballot is no higher and the result is the same.
  if seat_ballot and seat_ballot + 0 <= number and fence + 0 <= number
    and number <= ceiling and closed + 0 <= MAX then
    -- Formatting a number costs more than comparing numbers.
    local text = number >= min_fence and ballot or string.format('%.0f', min_fence)
    local last = closes and closed + 0 < number and ballot or closed
    return '$RECORD_VERSION:' .. text .. ':' .. last .. ':' .. now .. ':0'
  end
end
