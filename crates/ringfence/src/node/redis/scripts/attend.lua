-- Who has arrived at a latch? ARGV: how long it is kept in ms, 1 if all are to be listed, how long a
-- ticket stands in ms, then the tickets of those who wait.
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
