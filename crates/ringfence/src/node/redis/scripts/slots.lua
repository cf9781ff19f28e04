-- A semaphore: claim 1 is its admission record, which has the semaphore's one wait queue; slot n is
-- claim n + 2, a lock of its own. The value of the admission record's key is the largest number of
-- permits that a client lately gave the semaphore.
local free = {}
for i = 2, claims do
  if not values[i] then
    free[#free + 1] = i - 2
  end
end

-- How many of the waiters ahead must leave before it is the caller's turn, not counting those that
-- the free slots serve.
local function beyond(ahead)
  return math.max(ahead - math.max(#free, 1) + 1, 0)
end
