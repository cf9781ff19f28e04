-- A semaphore: claim 1 is the gate, where its one line stands; slot n is claim n + 2, a lock of its
-- own. What stands at the gate's key is the largest number of permits that anybody spoke of lately.
local free = {}
for i = 2, claims do
  if not values[i] then
    free[#free + 1] = i - 2
  end
end

-- How many of those ahead must go before the caller's turn comes, beyond those whom the free slots
-- serve.
local function beyond(ahead)
  return math.max(ahead - math.max(#free, 1) + 1, 0)
end
