-- Refresh: waiters keep their tickets alive and learn their positions in the queue.
-- ARGV: the lease of a ticket in ms, then the tickets.
-- Returns 1 if all claims are free, then for each ticket how many tickets are ahead of it, in the
-- longest of the queues.
local tickets, free = {}, 1
for j = 6, #ARGV do
  tickets[j - 5] = ARGV[j]
end
if #tickets > 0 then
  -- An empty token: a waiter holds none of the claims.
  enter('', tickets, tonumber(ARGV[5]))
end
for i = 1, claims do
  if values[i] and not (shares[i] and values[i] == SHARED) then
    free = 0
  end
end
local turns = reply('turns', free)
for j, ticket in ipairs(tickets) do
  local ahead = 0
  for i = 1, claims do
    ahead = math.max(ahead, ahead_of(i, ticket))
  end
  turns[5 + j - 1] = ahead
end
return turns
