-- Updates the records of the claims from `first` on with what a waiter finds: a stranger holds the
-- claim, or its holder is gone. The time after which a dead first waiter may be passed runs from
-- then on.
local function note_changes(first)
  for i = first, claims do
    local record = records[i]
    local stranger = values[i] and not seated(i)
    local vacated = not values[i] and (record.seat or record.stranger)
    if vacated or stranger and not record.stranger then
      write(i, 0, values[i] and redis.call('PTTL', KEYS[i]) or 0, nil)
    end
  end
end
