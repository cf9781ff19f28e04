-- Refresh: waiters for a slot keep their tickets alive and learn their positions in the queue.
-- ARGV: the lease of a ticket in ms, then the tickets.
-- Returns 1 if a slot is free, then for each ticket how many waiters must leave before its turn.
local tickets = {}
for j = 6, #ARGV do
  tickets[j - 5] = ARGV[j]
end
if #tickets > 0 then
  enter_slot_queue(tickets, tonumber(ARGV[5]))
  note_changes(2)
end
local turns = reply('turns', #free > 0 and 1 or 0)
for j, ticket in ipairs(tickets) do
  turns[5 + j - 1] = beyond(slots_ahead(ticket))
end
return turns
