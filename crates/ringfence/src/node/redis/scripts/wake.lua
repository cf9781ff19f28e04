-- Whom to tell that it may be their turn, and after how long: the earliest, if in several lines.
local told, after = {}, {}

-- Claim i is free: tells the first in line, or all the first who share, and the next, to come if they
-- do not. Nobody, if the first is the sender itself, who knows, and will be back. `readers`: it is free
-- for those who share only.
local function tell(i, sender, readers)
  local line, grace = lines[i], string.match(ARGV[1], '^.* (%d+)$')
  local share = line.shared and redis.call('ZRANGE', line.order, '[s', '(t', 'BYLEX') or {}
  local first = redis.call('ZRANGE', line.order, 0, math.max(#share, 1))
  if sender and first[1] == sender then
    return
  end
  local leading = 0
  while share[leading + 1] and share[leading + 1] == 's' .. first[leading + 1] do
    leading = leading + 1
  end
  local count = readers and leading or math.max(leading + 1, 2)
  for j = 1, math.min(count, #first) do
    local other = first[j]
    if other ~= sender and string.match(other, '^%d') then
      local id, wait = string.sub(other, 21), j <= leading and 0 or (j - 1) * grace
      if not after[id] then
        told[#told + 1] = id
      end
      after[id] = math.min(after[id] or wait, wait)
    end
  end
end
