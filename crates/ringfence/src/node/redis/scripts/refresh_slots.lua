-- Refresh: callers who wait for a slot say that they still do, and learn how they stand.
-- ARGV: how long a ticket stands in ms, then the tickets.
-- Answers 1 if a slot is free, then for each ticket how many must go before its turn comes.
local tickets = {}
for j = 6, #ARGV do
  tickets[j - 5] = ARGV[j]
end
if #tickets > 0 then
  enter_queue(1, tickets, tonumber(ARGV[5]))
  take_notice(2)
end
local turns = reply('turns', #free > 0 and 1 or 0)
for j, ticket in ipairs(tickets) do
  turns[5 + j - 1] = beyond(ahead_of(1, ticket))
end
return turns
