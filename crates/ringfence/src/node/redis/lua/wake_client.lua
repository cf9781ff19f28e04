-- Tells the client of `ticket` to come after `wait` ms, and to `slot` if one was freed for it. A wake
-- that may not be published is no error: those who wait look for themselves.
local function wake_client(ticket, wait, slot)
  -- Behind twenty digits of time stands the ticket's id, and in it the client, then a number.
  local id = string.sub(ticket, 21)
  local client = string.match(id, '^(.*)%.')
  if client then
    redis.pcall('PUBLISH', 'ringfence:wake:' .. client, wait .. ' ' .. id .. (slot and ' ' .. slot or ''))
  end
end
