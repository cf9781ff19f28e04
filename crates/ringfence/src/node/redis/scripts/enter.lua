-- Enters or refreshes `tickets` in the wait queue of every claim, for `lease_ms`. A client that
-- also waits for a name held by a token other than `own_token` cannot take the free names. Its
-- tickets are marked, so that no waiter passes them as if their client were dead.
local function enter(own_token, tickets, lease_ms)
  local held, blocked = 0, {}
  for i = 1, claims do
    if values[i] and values[i] ~= own_token and not (shares[i] and values[i] == SHARED) then
      held, blocked[i] = held + 1, true
    end
  end
  for i = 1, claims do
    enter_queue(i, tickets, lease_ms, held > (blocked[i] and 1 or 0))
  end
  note_changes(1)
end
