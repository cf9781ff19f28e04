-- Release: the final release of a holder, or the undo of an attempt.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown, 1 if the ticket stays in the
-- queue, for how many ms other clients are kept out, the lock delay of a receipt in ms; and if the
-- caller has a ticket: the ticket, and its lease in ms.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
local stays, keep, ticket = ARGV[8] == '1', final and tonumber(ARGV[9]) or 0, ARGV[11]
for i = 1, claims do
  -- A late release must not cut the delay.
  if in_delay(i, tonumber(ARGV[10])) then
    return reply('gone')
  end
end
-- A late undo of an earlier attempt must not delete the key of a later attempt.
for i = 1, claims do
  local own_seat = mine[i] or values[i] == token and seated(i)
  if own_seat and own_seat.ballot > ballot then
    return reply('newer')
  end
end
local held, gone = not_held(true)
for i = 1, ticket and stays and claims or 0 do
  if values[i] == token or mine[i] then
    -- The grant, which is now undone, removed the ticket from the queue.
    enter(token, { ticket }, tonumber(ARGV[12]))
    break
  end
end
for i = 1, claims do
  local reader = mine[i]
  local ours = values[i] == token or reader
  local was_first = false
  if ticket and not stays and queues[i] then
    -- The first ticket, or the first that does not want to share: without it, other tickets are
    -- first.
    local queue, rank = queues[i], redis.call('ZRANK', queues[i].order, ticket)
    was_first = rank == 0 or rank and not shares[i] and queue.shared
      and rank == redis.call('ZLEXCOUNT', queue.order, '[s', '(s' .. ticket)
    remove_tickets(i, { ticket })
  end
  if reader then
    unshare(i, reader, ballot, final, fate_unknown)
  else
    local record, tombstone = records[i], nil
    -- The holder released in time, but its lease may have ended before this node received the
    -- release. If the ballot is closed, the node received it before. A key that is not a string is
    -- not ours.
    local anew = keep > 0 and fate_unknown and not values[i] and ballot > record.closed
      and ballot <= ceiling and redis.call('EXISTS', KEYS[i]) == 0
    if keep > 0 and ours or anew then
      -- A tombstone, which no token matches. It counts as a holder: it has a seat, and the claim
      -- becomes free when the tombstone expires.
      local was = record.seat and record.seat.token == token and record.seat
        or { ballot = 0, label = '' }
      local id = string.match(token, '^(%x%x%x%x%x%x%x%x%x%x)%.') or '0000000000'
      values[i] = 'kept.' .. id
      redis.call('SET', KEYS[i], values[i], 'PX', keep)
      tombstone = {
        ballot = was.ballot, until_ms = now_ms + keep, token = values[i], label = was.label,
      }
    end
    local closes = final and (fate_unknown or keep > 0 or shares[i])
    retire(i, ours, ballot, final, fate_unknown, closes, queues[i], tombstone)
  end
  if queues[i] and not values[i] and (ours or was_first) then
    wake_first(i, stays and ticket, false)
  elseif queues[i] and values[i] == SHARED and was_first then
    wake_first(i, stays and ticket, true)
  end
end
for _, other in ipairs(woken) do
  wake_client(other, delays[other])
end
if held then
  return reply('held', holder(held))
end
return reply(gone and 'gone' or 'released')
