-- List: the keys of locks, slots, admission records and latches that are held or queued for, in a
-- portion of this server's keys; or the names with broken holds. No claims. Writes nothing. A user
-- who may only look passes any arguments: no number of pages stops the server.
-- ARGV: cursor ('' at the beginning), how many pages to search, 1 for broken holds, how many of these for each name.
--
-- Values: the next cursor ('0' at the end), how long the portion took in us (nil if that is not
-- known), then the keys; or for each broken hold its name and the values of an answer `broken`.
-- Servers differ: some have no `os`, some stop the clock of `TIME` while a script runs.
local measures, cpu = pcall(function()
  return os.clock
end)
local began = measures and cpu()
local cursor, pages = ARGV[5] == '' and '0' or ARGV[5], math.min(tonumber(ARGV[6]), $PAGES_MAX)
local breaks, shown = ARGV[7] == '1', tonumber(ARGV[8])
local found, keys = reply('listed', false, 0), 0
-- A reply is bounded: at most 2,300 bytes for each key, or 600 for each broken hold.
local page = breaks and 50 or 200

-- A key may be another program's, or one that our user may not read: then it is skipped.
local function number_of(...)
  local answer = redis.pcall(...)
  return type(answer) == 'number' and answer or 0
end

local function add(key)
  found[#found + 1] = key
  keys = keys + 1
end

local function add_breaks(key, name)
  local stored = redis.pcall('GET', key)
  local notes = {}
  for line in string.gmatch(type(stored) == 'string' and stored or '', '[^\n]+') do
    notes[#notes + 1] = { string.match(line, BROKEN) }
  end
  for i = math.max(#notes - shown + 1, 1), #notes do
    local at, fence, ballot, owner, by, label, reason = unpack(notes[i])
    if at and #notes[i] == 7 then
      for _, value in ipairs({
        name, tonumber(at), tonumber(fence), tonumber(ballot), owner == '-' and '' or owner, by,
        label, reason,
      }) do
        found[#found + 1] = value
      end
    end
  end
  keys = keys + 1
end

-- The tag has no closing brace, and the purpose no colon.
local function examine(key)
  local purpose, name = string.match(key, '^ringfence:{[^}]+}:([%l-]+):(.*)$')
  if not purpose then
    return
  elseif breaks then
    if purpose == '$BROKEN' then
      add_breaks(key, name)
    end
  elseif purpose == '$RECORD_KEY' then
    -- The key of a slot is found itself.
    if string.sub(name, 1, 10) ~= 'ringfence:' and number_of('EXISTS', name) == 1 then
      add(name)
    end
  elseif purpose == '$QUEUE_MARK' then
    local leases = string.gsub(key, '}:$QUEUE_MARK', '}:$QUEUE_LEASES', 1)
    if number_of('ZCOUNT', leases, string.format('%.0f', now_ms), '+inf') > 0 then
      add(name)
    end
  elseif purpose == 'slot' or purpose == 'latch' then
    add(key)
  end
end

for _ = 1, pages do
  local scanned = redis.pcall('SCAN', cursor, 'MATCH', 'ringfence:{*', 'COUNT', page)
  if scanned.err and string.find(scanned.err, "can't run", 1, true) then
    -- The error of a command in a script does not name the command.
    return redis.error_reply("NOPERM this user has no permissions to run the 'scan' command")
  elseif scanned.err then
    return scanned
  end
  cursor = scanned[1]
  for _, key in ipairs(scanned[2]) do
    examine(key)
  end
  if cursor == '0' or keys >= page then
    break
  end
end
local took
if measures then
  took = math.ceil((cpu() - began) * 1000000)
else
  time = redis.call('TIME')
  took = time[1] * 1000000 + time[2] - clock
end
found[4], found[5] = cursor, took > 0 and took
return found
