-- Release slots of a semaphore: the final release of a holder, or the undo of an attempt.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown, 1 if the ticket stays in the
-- queue, which slots (only, but, all) and the slot that this refers to, the lock delay of a receipt
-- in ms; and if the caller has a ticket: its lease in ms, and the ticket.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
local stays, which, slot = ARGV[8] == '1', ARGV[9], tonumber(ARGV[10])
local delay, lease_ms, ticket = tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13]

local freed, newer, taken = {}, false, nil
for i = 2, claims do
  local selected = which == 'all' or (which == 'only') == (i - 2 == slot)
  local ours, seat_now = values[i] == token, seated(i)
  -- A late release must not cut the delay.
  selected = selected and not in_delay(i, delay)
  if selected and ours and seat_now and seat_now.ballot > ballot then
    -- A late undo of an earlier attempt must not release the slot of a later attempt.
    newer = true
  elseif selected then
    if which == 'only' and values[i] and not ours then
      taken = i
    end
    if ours then
      freed[#freed + 1] = i - 2
    end
    retire(i, ours, ballot, final, fate_unknown, final and fate_unknown, queues[1])
  end
end
if ticket and stays and #freed > 0 then
  -- The grant, which is now undone, removed the ticket from the queue.
  enter_slot_queue({ ticket }, lease_ms)
elseif ticket and not stays and queues[1] then
  remove_tickets(1, { ticket })
end

local released = #freed > 0
wake_served(freed, stays and ticket)
if released then
  return reply('released')
elseif newer then
  return reply('newer')
elseif taken then
  return reply('held', holder(taken))
end
return reply('gone')
