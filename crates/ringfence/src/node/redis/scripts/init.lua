-- Init: the operator's word that this node's group is new. Writes the birth record as grown up.
-- KEYS: born. ARGV: the run id and the replication id that the client saw (`-` if the server does not tell), 1 if every write
-- is on disk before it is answered, how far to go (check, write, force, check regroup, regroup), the group (nodes, window in
-- us, quarantine in ms, grace in ms), then the values that a client takes unless told otherwise (same four), then how far the
-- search for records has come: cursor, how many records and holders were found, the longest time that one of the records has
-- left in ms, the birth record that stood there when the search began ('' if none), and how many pages to search now.
-- Answers: clock, 'done' ('free' after a check) or why not ('changed' if this is not the server that the client saw), what
-- stands there now, how many records there are ('+' behind the number if the search ended early), cursor and longest time as
-- above, then name and label of each present holder. 'more': nothing was decided, the search goes on from that cursor.
-- 'again': the birth record changed, the search starts anew.
local BATCH, HOLDERS = 500, 20
local cursor, found, held, longest, seen, pages = unpack(ARGV, #ARGV - 5)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock = string.format('%.0f', now)
local group, usual = table.concat(ARGV, ' ', 5, 8), table.concat(ARGV, ' ', 9, 12)

local count, holders, longest_ms = tonumber(found), {}, tonumber(longest)
local function look_at(record_key)
  -- Other side keys (wait queues, readers) hold no lock.
  local name = string.match(record_key, '^ringfence:{[^}]+}:$RECORD:(.*)$')
  if not name then
    return
  end
  count = count + 1
  longest_ms = math.max(longest_ms, redis.call('PTTL', record_key))
  local stored = redis.call('MGET', record_key, name)
  if stored[1] and stored[2] and #holders < 2 * HOLDERS then
    local token, label = string.match(stored[1], '^2:%d+:%d+:%d+:[01]:%d+:%d+:([^:]+):(.*)$')
    if not token then
      token, label = string.match(stored[1], '^1:%d+:%d+:%d+:([^:]+):(.*)$')
    end
    if not token then
      token, label = string.match(stored[1], '^3:%d+:%d+:%d+:%d+:[01]:%d+:%d+:([^:]+):(.*)$')
    end
    if token == stored[2] then
      holders[#holders + 1] = name
      holders[#holders + 1] = label
    end
  end
end

-- Bounded, because a script stops the whole server while it runs. The client goes on from the cursor.
local continues, complete = cursor ~= '0', false
for _ = 1, tonumber(pages) do
  local page = redis.call('SCAN', cursor, 'MATCH', 'ringfence:{*', 'COUNT', BATCH)
  for _, record_key in ipairs(page[2]) do
    look_at(record_key)
  end
  cursor = page[1]
  if cursor == '0' then
    complete = true
    break
  end
end
local counted = count .. (complete and '' or '+')

local function answer(word, born)
  return { clock, word, born or false, counted, cursor, string.format('%.0f', longest_ms), unpack(holders) }
end

local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
if string.match(server, '\nrun_id:(%x+)') ~= ARGV[1]
  or (string.match(replication, '\nmaster_replid:(%x+)') or '-') ~= ARGV[2]
  or not string.find(replication, '\nrole:master\r', 1, true) then
  return answer('changed')
end
local stands = redis.call('GET', KEYS[1])
local mode = ARGV[4]
-- No lock is taken under a birth record that is not there. If it is the one that stood there when the search began, a
-- client that joined meanwhile cannot have taken a lock behind the cursor's back.
if continues and (stands or '') ~= seen then
  return answer('again', stands)
end
if not complete and mode ~= 'force' then
  return answer('more', stands)
end
local is_held = #holders > 0 or tonumber(held) > 0
if mode == 'regroup' or mode == 'check regroup' then
  if is_held then
    return answer('holders', stands)
  end
  if stands then
    local window_us, quarantine_ms = string.match(stands, '^$BORN_VERSION %x+ %S+ %- [01] %d+ %d+ [01] %d+ (%d+) (%d+) %d+$')
    if not window_us then
      return redis.error_reply('DAMAGED 0')
    end
    -- A record is kept for at least this long after its last use: what is left tells how long ago.
    local retention_ms = math.max(60000, window_us / 500 + 5000)
    if longest_ms > retention_ms - quarantine_ms then
      return answer('recent', stands)
    end
  end
elseif mode ~= 'force' then
  if stands then
    local birth, theirs = string.match(stands, '^$BORN_VERSION %x+ %S+ %- [01] %d+ (%d+) [01] (%d+ %d+ %d+ %d+)$')
    if not birth then
      return redis.error_reply('DAMAGED 0')
    end
    local quarantine_ms = string.match(theirs, '^%d+ %d+ (%d+)')
    if tonumber(birth) == 0 or now - birth >= quarantine_ms * 1000 then
      return answer('grown', stands)
    end
    -- A young record is what the first client's handshake left; it is no group until it differs.
    if theirs ~= group and theirs ~= usual then
      return answer('group', stands)
    end
  end
  -- Beside a young record, what nobody holds is what attempts left that were told to run init.
  if is_held or (count > 0 and not stands) then
    return answer('records', stands)
  end
end
if mode == 'check' or mode == 'check regroup' then
  return answer('free', stands)
end
local replicated = not string.find(replication, '\nmaster_replid2:0+\r')
  or not string.find(replication, '\nconnected_slaves:0\r', 1, true)
local durable = ARGV[3] == '1' and not replicated
local born = '$BORN_VERSION ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' - ' .. (replicated and '1 ' or '0 ') .. clock .. ' 0 '
  .. (durable and '1 ' or '0 ') .. group
redis.call('SET', KEYS[1], born)
return answer('done', born)
