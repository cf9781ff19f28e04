-- Refresh: callers in line say that they still wait, and learn how they stand.
-- ARGV: how long a ticket stands in ms, then the tickets.
-- Answers 1 if nobody holds any of the claims, then for each ticket how many are ahead of it, in the
-- longest of the lines.
local tickets, free = {}, 1
for j = 6, #ARGV do
  tickets[j - 5] = ARGV[j]
end
if #tickets > 0 then
  -- Nobody's token: whoever waits holds nothing.
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
