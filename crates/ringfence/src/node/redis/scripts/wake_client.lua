-- Publishes a wake for `ticket`: its client retries after `wait` ms, with `slot` if one was freed for
-- it. In a ticket the id is between twenty digits of time and the label; it is the client and a
-- number. A wake that our user may not publish is no error: waiters also retry by themselves.
local function wake_client(ticket, wait, slot)
  local id, client = string.match(ticket, '^(([^\n]*)%.[^\n]*)', 21)
  if client then
    redis.pcall('PUBLISH', '$WAKE_CHANNEL' .. client,
      wait .. ' ' .. id .. (slot and ' ' .. slot or ''))
  end
end
