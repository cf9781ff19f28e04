-- Publishes a wake for the ticket with this id: its client retries after `wait` ms, with `slot` if
-- one was freed for it. In a ticket the id follows twenty digits of time; it is the client and a
-- number. A wake that our user may not publish is no error: waiters also retry by themselves.
local function wake_client(id, wait, slot)
  local client = string.match(id, '^(.*)%.')
  if client then
    redis.pcall('PUBLISH', '$WAKE_CHANNEL' .. client,
      wait .. ' ' .. id .. (slot and ' ' .. slot or ''))
  end
end
