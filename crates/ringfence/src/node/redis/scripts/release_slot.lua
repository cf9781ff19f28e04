-- Release slots of a semaphore: the final release of a holder, or the undo of an attempt.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown, 1 if the ticket stays in the
-- queue, which slots (only, but, all) and the slot that this refers to; and if the caller has a
-- ticket: its lease in ms, and the ticket.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
local stays, which, slot = ARGV[8] == '1', ARGV[9], tonumber(ARGV[10])
local lease_ms, ticket = tonumber(ARGV[11]), ARGV[12]

-- The tickets that `count` free slots serve.
local function served(count)
  if not queues[1] or count == 0 then
    return {}
  end
  return redis.call('ZRANGE', queues[1].order, 0, count - 1)
end

local before, count = {}, #free
for _, other in ipairs(served(count)) do
  before[other] = true
end
local freed, newer, taken = {}, false, nil
for i = 2, claims do
  local selected = which == 'all' or (which == 'only') == (i - 2 == slot)
  local ours, seat_now = values[i] == token, seated(i)
  if selected and ours and seat_now and seat_now.ballot > ballot then
    -- A late undo of an earlier attempt must not release the slot of a later attempt.
    newer = true
  elseif selected then
    if which == 'only' and values[i] and not ours then
      taken = i
    end
    if ours then
      freed[#freed + 1], count = i - 2, count + 1
    end
    retire(i, ours, ballot, final, fate_unknown, final and fate_unknown, queues[1])
  end
end
if ticket and stays and #freed > 0 then
  -- The grant, which is now undone, removed the ticket from the queue.
  enter_queue(1, { ticket }, lease_ms)
elseif ticket and not stays and queues[1] then
  remove_tickets(1, { ticket })
end

-- Wake the waiters that the free slots serve now and did not serve before, and the next one, which
-- retries after the grace. Never the sender. Each wake names the slot that was freed for it: if
-- each node picked a slot, nodes that received other releases meanwhile would pick different slots,
-- and no slot would get a majority.
local sender, woken = stays and ticket, 0
for _, other in ipairs(served(count)) do
  if not before[other] and other ~= sender then
    woken = woken + 1
    wake_client(string.sub(other, 21), '0', freed[woken])
  end
end
local next_ticket = woken > 0 and redis.call('ZRANGE', queues[1].order, count, count)[1]
if next_ticket and next_ticket ~= sender then
  -- The grace is the last field of born.
  wake_client(string.sub(next_ticket, 21), string.match(ARGV[1], '^.* (%d+)$'))
end
if #freed > 0 then
  return reply('released')
elseif newer then
  return reply('newer')
elseif taken then
  return reply('held', holder(taken))
end
return reply('gone')
