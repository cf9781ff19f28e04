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
  local ours, record, sitting = values[i] == token, records[i], seated(i)
  if meant and ours and sitting and sitting.ballot > ballot then
    -- A late undo of an earlier attempt must not give back what a later one got.
    newer = true
  elseif meant then
    if which == 'only' and values[i] and not ours then
      taken = i
    end
    -- Retiring always would let pollers starve everyone else: against an absent key the fence rises
    -- only if the acquire may still be on its way.
    if ours or final or fate_unknown then
      local key_left, kept, since = 0, nil, nil
      if ours then
        -- An attempt that comes and goes must not restart the time that those in line have to come.
        since = final and now_ms or record.free_since
        redis.call('DEL', KEYS[i])
        values[i] = false
        freed[#freed + 1], count = i - 2, count + 1
      elseif values[i] then
        key_left, kept = redis.call('PTTL', KEYS[i]), sitting
      end
      if final and ballot <= ceiling then
        record.closed = math.max(record.closed, ballot)
      end
      write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)
    end
  end
end
if ticket and stays and #freed > 0 then
  -- Its ticket left the line with the grant that is now taken back.
  enter_gate({ ticket }, lease_ms)
elseif ticket and not stays and lines[1] then
  drop(1, { ticket })
end

local function tell(other, after, slot)
  local id = string.sub(other, 21)
  local client = string.match(id, '^(.*)%.')
  if client then
    -- Nobody's release fails because a wake may not be published: those who wait look for themselves.
    redis.pcall('PUBLISH', 'ringfence:wake:' .. client, after .. ' ' .. id .. (slot and ' ' .. slot or ''))
  end
end
-- Those whom the free slots serve now and did not before, and the next, to come if they do not. Never
-- the sender, who knows. Each hears which slot was freed for it: were each node to pick, those that
-- have heard of another release meanwhile would pick another, and the votes not add up.
local sender, told = stays and ticket, 0
for _, other in ipairs(served(count)) do
  if not before[other] and other ~= sender then
    told = told + 1
    tell(other, '0', freed[told])
  end
end
local next_one = told > 0 and redis.call('ZRANGE', lines[1].order, count, count)[1]
if next_one and next_one ~= sender then
  tell(next_one, string.match(ARGV[1], '%d+$'))
end
if #freed > 0 then
  return reply('released')
elseif newer then
  return reply('newer')
elseif taken then
  return reply('held', holder(taken))
end
return reply('gone')
