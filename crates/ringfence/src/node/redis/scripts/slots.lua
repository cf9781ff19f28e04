-- A semaphore: claim 1 is its admission record, which has the semaphore's one wait queue; slot n is
-- claim n + 2, a lock of its own. The value of the admission record's key is the largest number of
-- permits that a client lately gave the semaphore.
local free = {}
for i = 2, claims do
  if not values[i] then
    free[#free + 1] = i - 2
  end
end

-- How many of the free slots a client with this number of permits can use.
local function usable(permits)
  local count = 0
  while free[count + 1] and free[count + 1] < permits do
    count = count + 1
  end
  return count
end

