-- Init: the operator declares that this node's group is new. Writes a birth record without a
-- quarantine.
-- KEYS: born.
-- ARGV: the run id and the replication id that the client saw (`-` if the server does not report
-- it), 1 if every write is on disk before it is answered, the mode (check, write, force, check
-- regroup, regroup), the epoch of the Sentinels, their number and the client's database as for join,
-- the group (seven values as for join), then the default values of a group (same seven), then the
-- state of the search for records: cursor, how many records and holders were found, the longest remaining time of a record in ms, the birth record at
-- the beginning of the search ('' if none), and how many pages to search now.
-- Returns: clock, 'done' ('free' after a check) or the reason for a refusal ('changed' if this is
-- not the server that the client saw), the birth record, how many records were found (followed by
-- '+' if the search ended early), cursor and longest time as above, then name and label of each
-- present holder. 'more': nothing was decided, and the next call continues at that cursor. 'again':
-- the birth record changed, and the search starts anew.
local BATCH, HOLDERS = 500, 20
local cursor, found, held, longest, seen, pages = unpack(ARGV, #ARGV - 5)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock = string.format('%.0f', now)
local group, defaults = table.concat(ARGV, ' ', 8, 14), table.concat(ARGV, ' ', 15, 21)

local count, holders, longest_ms = tonumber(found), {}, tonumber(longest)
local function count_record(key)
  -- The other side keys, of wait queues and readers, hold no lock.
  local name = string.match(key, '^ringfence:{[^}]+}:$RECORD_KEY:(.*)$')
  if not name then
    return
  end
  count = count + 1
  longest_ms = math.max(longest_ms, redis.call('PTTL', key))
  local stored = redis.call('MGET', key, name)
  if stored[1] and stored[2] and #holders < 2 * HOLDERS then
    local record = string.gsub(stored[1], '$RECORD_READERS', '$RECORD_ALONE')
    local _, token, label = string.match(record, '$RECORD_HOLDER')
    if token == stored[2] then
      holders[#holders + 1] = name
      holders[#holders + 1] = label
    end
  end
end

-- Bounded, because a script stops the whole server while it runs. The client continues at the
-- cursor.
local continues, complete = cursor ~= '0', false
for _ = 1, tonumber(pages) do
  local page = redis.call('SCAN', cursor, 'MATCH', 'ringfence:{*', 'COUNT', BATCH)
  for _, key in ipairs(page[2]) do
    count_record(key)
  end
  cursor = page[1]
  if cursor == '0' then
    complete = true
    break
  end
end
local counted = count .. (complete and '' or '+')

local function reply(outcome, born)
  local longest_text = string.format('%.0f', longest_ms)
  return { clock, outcome, born or false, counted, cursor, longest_text, unpack(holders) }
end

local server, replication = info('server'), info('replication')
local id = replication and string.match(replication, '\nmaster_replid:(%x+)') or '-'
if server and string.match(server, '\nrun_id:(%x+)') ~= ARGV[1] or id ~= ARGV[2]
  or replication and not string.find(replication, '\nrole:master\r', 1, true) then
  return reply('changed')
end
replication = replication or ''
local stored = redis.call('GET', KEYS[1])
local mode = ARGV[4]
-- Locks are taken only under the stored birth record. If it is still the one from the beginning of
-- the search, no client that joined meanwhile can have taken a lock where the search has already
-- been.
if continues and (stored or '') ~= seen then
  return reply('again', stored)
end
if not complete and mode ~= 'force' then
  return reply('more', stored)
end
local is_held = #holders > 0 or tonumber(held) > 0
if mode == 'regroup' or mode == 'check regroup' then
  if is_held then
    return reply('holders', stored)
  end
  if stored then
    local window_us, quarantine_ms =
      string.match(stored, '^$BORN_VERSION %x+ %S+ [%d%-]+ %d+ [01] %d+ %d+ [01] %d+ %d+ (%d+) (%d+) '
        .. '%d+ %d+ %d+ %d+$')
    if not window_us then
      return redis.error_reply('DAMAGED 0')
    end
    -- A record is kept at least this long after its last use, so its remaining time tells how long
    -- ago that was.
    local retention_ms = math.max(60000, window_us / 500 + 5000)
    if longest_ms > retention_ms - quarantine_ms then
      return reply('recent', stored)
    end
  end
elseif mode ~= 'force' then
  if stored then
    local birth, stored_group = string.match(stored,
      '^$BORN_VERSION %x+ %S+ [%d%-]+ %d+ [01] %d+ (%d+) [01] %d+ (%d+ %d+ %d+ %d+ %d+ %d+ %d+)$')
    if not birth then
      return redis.error_reply('DAMAGED 0')
    end
    local quarantine_ms = string.match(stored_group, '^%d+ %d+ (%d+)')
    if tonumber(birth) == 0 or now - birth >= quarantine_ms * 1000 then
      return reply('votes', stored)
    end
    -- A record in quarantine was written by the first client's handshake. It counts as a group of
    -- its own only if its values are not the defaults.
    if stored_group ~= group and stored_group ~= defaults then
      return reply('group', stored)
    end
  end
  -- In quarantine, records without a holder are the remains of attempts that were refused with the
  -- hint to run init.
  if is_held or (count > 0 and not stored) then
    return reply('records', stored)
  end
end
if mode == 'check' or mode == 'check regroup' then
  return reply('free', stored)
end
local replicated = not string.find(replication, '\nmaster_replid2:0+\r')
  or not string.find(replication, '\nconnected_slaves:0\r', 1, true)
local lossless = string.match(group, '^%d+ %d+ %d+ (%d+)') == '$LOSSLESS'
local durable = lossless or ARGV[3] == '1' and not replicated
local born = '$BORN_VERSION ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6]
  .. (replicated and ' 1 ' or ' 0 ') .. clock .. ' 0 ' .. (durable and '1 ' or '0 ')
  .. ARGV[7] .. ' ' .. group
redis.call('SET', KEYS[1], born)
return reply('done', born)
