-- The wait queue of a single claim in the usual case: no ticket is marked (see line.lua) and no
-- ticket has expired. The general code below gives the same result; all other cases are left to it.
local kept_until, order, lease = #KEYS == 4 and values[3] and tonumber(values[3])
if kept_until then
  local at = string.find(KEYS[3], '}:$QUEUE_MARK', 1, true)
  local before, behind = string.sub(KEYS[3], 1, at), string.sub(KEYS[3], at + #'}:$QUEUE_MARK')
  order, lease = before .. ':$QUEUE_ORDER' .. behind, before .. ':$QUEUE_LEASES' .. behind
  if redis.call('ZCOUNT', lease, 0, now_ms - 1) > 0 then
    order = nil
  end
end

