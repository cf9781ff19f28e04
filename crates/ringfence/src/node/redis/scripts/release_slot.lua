-- Release slots of a semaphore: a holder is done, or an attempt is withdrawn.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown, 1 if the place in line is kept,
-- which slots (only, but, all) and the slot that is meant; and if the caller has a ticket: how long it
-- stands in ms, and the ticket.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
local stays, which, slot = ARGV[8] == '1', ARGV[9], tonumber(ARGV[10])
local lease_ms, ticket = tonumber(ARGV[11]), ARGV[12]

-- The tickets that `count` free slots serve.
local function served(count)
  if not lines[1] or count == 0 then
    return {}
  end
  return redis.call('ZRANGE', lines[1].order, 0, count - 1)
end

local before, count = {}, #free
for _, other in ipairs(served(count)) do
  before[other] = true
end
local freed, newer, taken = {}, false, nil
for i = 2, claims do
  local meant = which == 'all' or (which == 'only') == (i - 2 == slot)
  local ours, sitting = values[i] == token, seated(i)
  if meant and ours and sitting and sitting.ballot > ballot then
    -- A late undo of an earlier attempt must not give back what a later one got.
    newer = true
  elseif meant then
    if which == 'only' and values[i] and not ours then
      taken = i
    end
    if ours then
      freed[#freed + 1], count = i - 2, count + 1
    end
    retire(i, ours, ballot, final, fate_unknown)
  end
end
if ticket and stays and #freed > 0 then
  -- Its ticket left the line with the grant that is now taken back.
  enter_queue(1, { ticket }, lease_ms)
elseif ticket and not stays and lines[1] then
  drop(1, { ticket })
end

-- Those whom the free slots serve now and did not before, and the next, to come if they do not. Never
-- the sender, who knows. Each hears which slot was freed for it: were each node to pick, those that
-- have heard of another release meanwhile would pick another, and the votes not add up.
local sender, told = stays and ticket, 0
for _, other in ipairs(served(count)) do
  if not before[other] and other ~= sender then
    told = told + 1
    wake_client(string.sub(other, 21), '0', freed[told])
  end
end
local next_one = told > 0 and redis.call('ZRANGE', lines[1].order, count, count)[1]
if next_one and next_one ~= sender then
  -- The grace stands at the end of born.
  wake_client(string.sub(next_one, 21), string.match(ARGV[1], '^.* (%d+)$'))
end
if #freed > 0 then
  return reply('released')
elseif newer then
  return reply('newer')
elseif taken then
  return reply('held', holder(taken))
end
return reply('gone')
