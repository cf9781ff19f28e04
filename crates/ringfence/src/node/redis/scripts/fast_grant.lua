-- The usual grant: of a free claim, to a caller who is to hold it alone. `record` is what its record
-- says, or false; `text` is the ballot as it was sent; `ends` is when the lease ends in ms, between
-- colons. Answers what the record is to say then, or nil if the ballot may not be granted or the
-- record is not of the usual sort. Writes nothing.
--
-- Where two texts are the same, so are the numbers, and a number of less than 16 digits is below MAX:
-- in a bundle that is felt.
local match, tonumber = string.match, tonumber
local function granted(record, ballot, text, ends, token, label)
  local fence, closed, since = '0', '0', '0'
  if record then
    -- Mostly the last holder's ballot is the fence, and closed.
    fence, since = match(record, '^2:(%d+):%1:(%d+):0$')
    closed = fence
    if not fence then
      fence, closed, since = match(record, '^2:(%d+):(%d+):(%d+):0$')
    end
  end
  if fence and ballot > ground and ballot > tonumber(fence) and ballot <= ceiling
    and (closed == fence or tonumber(closed) <= MAX) and (#since < 16 or tonumber(since) <= MAX) then
    return '2:' .. text .. ':' .. closed .. ':' .. since .. ':0:' .. text .. ends .. token .. ':'
      .. label
  end
end
