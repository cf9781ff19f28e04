-- The usual grant: a free claim, for an exclusive holder. `record` is the stored record, or false;
-- `text` is the ballot as it was sent; `ends` is the end of the lease in ms, between colons.
-- Returns the new record, or nil if the ballot may not be granted or the record is unusual. Writes
-- nothing.
--
-- Equal texts are equal numbers, and a number of less than 16 digits is below MAX. Skipping the
-- conversions is measurably faster in a bundle.
local match, tonumber = string.match, tonumber
local function granted(record, ballot, text, ends, token, label)
  local fence, closed, since = '0', '0', '0'
  if record then
    -- Mostly the last holder's ballot is both the fence and the closed ballot.
    fence, since = match(record, '^2:(%d+):%1:(%d+):0$')
    closed = fence
    if not fence then
      fence, closed, since = match(record, '^2:(%d+):(%d+):(%d+):0$')
    end
  end
  if fence and ballot > min_fence and ballot > tonumber(fence) and ballot <= ceiling
    and (closed == fence or tonumber(closed) <= MAX)
    and (#since < 16 or tonumber(since) <= MAX) then
    return '2:' .. text .. ':' .. closed .. ':' .. since .. ':0:' .. text .. ends .. token .. ':'
      .. label
  end
end
