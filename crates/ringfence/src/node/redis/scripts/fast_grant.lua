-- The usual grant: of a free claim, to an exclusive holder. Grants and returns true, or writes
-- nothing: the ballot may not be granted, the record is unusual, or the key is not a string.
-- `record` is the stored record, or false; `ballot` is the text that was sent; `ends` is the end of
-- the lease in ms; `by` says what `kept` is: PX or PXAT. `waited`: the caller has a ticket. Without one
-- it found the claim free and without waiters, until `now`.
--
-- The texts come ready: formatting a number costs as much as a third of a `SET`. `PXAT` is cheaper
-- than `PX`, which the server rewrites as `PXAT` for its replicas even if it has none.
local function grant(key, record_key, record, token, ballot, label, ends, by, kept, waited)
  local number, fence, closed, since = ballot + 0, '0', '0', waited and '0' or now
  if record and waited then
    -- The grace of the waiters goes on. A release to waiters leaves a record without a seat.
    fence, closed, since = match(record, '$RECORD_FREE')
  elseif record then
    fence, closed = match(record, '$RECORD_FENCES')
  end
  if fence and number > fence + 0 and number > min_fence and number <= ceiling
    and (closed == '0' or closed + 0 <= MAX) and #since < 16
    and call('SET', key, token, 'NX', 'PXAT', ends) then
    call('SET', record_key, '$RECORD_VERSION:' .. ballot .. ':' .. closed .. ':' .. since .. ':0:'
      .. ballot .. ':' .. ends .. ':' .. token .. ':' .. label, by, kept)
    return true
  end
end
