-- Enters or refreshes `tickets` in the wait queue of every claim, for `lease_ms`. One that also waits
-- for a name that somebody other than `who` holds cannot come to the others, and must not be passed
-- there as if it were dead.
local function enter(who, tickets, lease_ms)
  local held, blocked = 0, {}
  for i = 1, claims do
    if values[i] and values[i] ~= who and not (shares[i] and values[i] == SHARED) then
      held, blocked[i] = held + 1, true
    end
  end
  for i = 1, claims do
    enter_queue(i, tickets, lease_ms, held > (blocked[i] and 1 or 0))
  end
  take_notice(1)
end
