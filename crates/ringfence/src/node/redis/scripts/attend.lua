-- Attend: which parties have arrived at a latch. ARGV: how long to keep it in ms, 1 to list all
-- parties, the lease of a ticket in ms, then the tickets of the waiters.
local tickets = {}
for j = 8, #ARGV do
  tickets[j - 7] = ARGV[j]
end
if #tickets > 0 then
  enter_queue(1, tickets, tonumber(ARGV[7]))
end
if made then
  keep(tonumber(ARGV[5]))
end
return arrivals(ARGV[6] == '1')
