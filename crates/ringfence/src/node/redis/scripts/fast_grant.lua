-- The usual grant: of a free claim, to an exclusive holder. Grants and returns true, or writes
-- nothing: the ballot may not be granted, the record is unusual, or the key is not a string.
-- `record` is the stored record, or false; `ballot` is the text that was sent; `ends` is the end of
-- the lease in ms; `by` says what `lease` and `kept` are: PX or PXAT. `waited`: the caller has a
-- ticket. Without one it found the claim free and without waiters, until `now`.
--
-- The texts come ready: formatting a number costs as much as a third of a `SET`.
local call, match, tonumber = redis.call, string.match, tonumber
local function grant(key, record_key, record, token, ballot, label, now, ends, by, lease, kept, waited)
  local number, fence, closed, since = tonumber(ballot), '0', '0', waited and '0' or now
  if record and waited then
    -- The grace of the waiters goes on. A release to waiters leaves a record without a seat.
    fence, closed, since = match(record, '$RECORD_FREE')
  elseif record then
    fence, closed = match(record, '$RECORD_FENCES')
  end
  if fence and number > tonumber(fence) and number > min_fence and number <= ceiling
    and (closed == '0' or tonumber(closed) <= MAX) and #since < 16
    and call('SET', key, token, 'NX', by, lease) then
    call('SET', record_key, '$RECORD_VERSION:' .. ballot .. ':' .. closed .. ':' .. since .. ':0:'
      .. ballot .. ':' .. ends .. ':' .. token .. ':' .. label, by, kept)
    return true
  end
end
