-- Writes down what a caller in a wait queue found at the claims from `first` on: that a stranger
-- holds, or that a holder is gone. Only then does the time that lets others pass a dead head begin to
-- run.
local function take_notice(first)
  for i = first, claims do
    local record = records[i]
    local stranger = values[i] and not seated(i)
    local vacated = not values[i] and (record.seat or record.stranger)
    if vacated or stranger and not record.stranger then
      write(i, 0, values[i] and redis.call('PTTL', KEYS[i]) or 0, nil)
    end
  end
end
