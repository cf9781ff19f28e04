-- Tells the client whose ticket has this id to come after `wait` ms, and to `slot` if one was freed for
-- it. In a ticket the id stands behind twenty digits of time; it is the client and a number. A wake
-- that may not be published is no error: clients that wait also look for themselves.
local function wake_client(id, wait, slot)
  local client = string.match(id, '^(.*)%.')
  if client then
    redis.pcall('PUBLISH', '$WAKE_CHANNEL' .. client, wait .. ' ' .. id .. (slot and ' ' .. slot or ''))
  end
end
