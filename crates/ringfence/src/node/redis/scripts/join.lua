-- Join: beside init, the only script that writes a node's birth record. It follows the rule in
-- ledger/birth.rs.
-- KEYS: born. ARGV: the run id and the replication id that the client saw (`-` if the server does
-- not report it; a client that may not run INFO passes the run id of the record, or makes one up), 1 if every write is on disk before it is answered, repl-backlog-ttl in s (`-` if
-- not known), the epoch that a majority of the Sentinels confirmed (`-` without Sentinels), the
-- number of Sentinels and that of the client's database, then the group: nodes, window in us, quarantine in ms, failover level, the
-- two times of a failover and the grace in ms.
-- Returns the clock and the birth record, or no record if this is not the server that the client
-- saw.
local run_id, replication_id = ARGV[1], ARGV[2]
local synced, backlog_ttl = ARGV[3] == '1', tonumber(ARGV[4])
local epoch, sentinels, database = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local lossless = ARGV[11] == '$LOSSLESS'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock = string.format('%.0f', now)

-- The server may have been demoted or promoted since the client looked at it.
local server, replication = info('server'), info('replication')
local unseen = not server or not replication
local id = replication and string.match(replication, '\nmaster_replid:(%x+)') or '-'
if server and string.match(server, '\nrun_id:(%x+)') ~= run_id or id ~= replication_id
  or replication and not string.find(replication, '\nrole:master\r', 1, true) then
  return { clock, false }
end
replication = replication or ''
local former_id = not string.find(replication, '\nmaster_replid2:0+\r')
local has_replicas = not string.find(replication, '\nconnected_slaves:0\r', 1, true)

local function write(since, birth, replicated, durable, group)
  local born = '$BORN_VERSION ' .. run_id .. ' ' .. id .. ' ' .. epoch .. ' ' .. sentinels
    .. (replicated and ' 1 ' or ' 0 ') .. since .. ' ' .. birth .. (durable and ' 1 ' or ' 0 ')
    .. database .. ' ' .. group
  redis.call('SET', KEYS[1], born)
  return { clock, born }
end

local stored = redis.call('GET', KEYS[1])
if not stored then
  local replicated = has_replicas or former_id
  local durable = lossless or synced and not replicated
  return write(clock, clock, replicated, durable, table.concat(ARGV, ' ', 8, 14))
end
local stored_run, stored_id, stored_epoch, stored_sentinels, was_replicated, since, birth,
  was_durable, stored_database, group = string.match(stored, '^$BORN_VERSION (%x+) ([%x%-]+) '
    .. '([%d%-]+) (%d+) ([01]) (%d+) (%d+) ([01]) (%d+) (%d+ %d+ %d+ %d+ %d+ %d+ %d+)$')
-- Never overwrite a record that is unreadable, nor, without Sentinels, one that has an epoch of
-- theirs: the client reports it.
if not stored_run or stored_epoch ~= '-' and epoch == '-' then
  return { clock, stored }
end
-- A Sentinel that was reset or added late must not lower the number that makes a majority.
sentinels = string.format('%.0f', math.max(sentinels, stored_sentinels))
-- Two births are two incarnations, even if the clock was set back.
local later = string.format('%.0f', math.max(now, since + 1))
if tonumber(stored_database) ~= tonumber(database) then
  -- SWAPDB brought the data of another application. Its locks are not ours, nor are its values.
  local replicated = was_replicated == '1' or has_replicas or former_id
  local durable = lossless or synced and not replicated
  return write(later, clock, replicated, durable, table.concat(ARGV, ' ', 8, 14))
end
lossless = string.match(group, '^%d+ %d+ %d+ (%d+)') == '$LOSSLESS'
if not server then
  run_id = stored_run
end
local same_run, same_epoch = stored_run == run_id, epoch == stored_epoch
if unseen and same_run and same_epoch then
  -- A client that may not run INFO knows nothing of the server that could change the record.
  if sentinels == stored_sentinels then
    return { clock, stored }
  end
  id = stored_id
  return write(since, birth, was_replicated == '1', was_durable == '1', group)
end
if same_run and id == '-' then
  -- A server that no longer reports its id cannot be compared.
  id = stored_id
end
local moved = same_run and id ~= stored_id
-- The server has a replica, or had one: the first replica gave the server another id.
local replicated = was_replicated == '1' or moved or has_replicas or former_id
local durable = lossless or synced and not replicated
local quarantine_ms = string.match(group, '^%d+ %d+ (%d+)')
-- A backlog TTL of zero means that the server never forgets its former id. With Sentinels the epoch
-- tells of a promotion.
local remembers = epoch ~= '-' or backlog_ttl
  and (backlog_ttl == 0 or backlog_ttl * 1000 >= tonumber(quarantine_ms))

local is_birth
if lossless then
  -- The operator's word: no acknowledged write is lost.
  is_birth = false
elseif same_run then
  -- The server was promoted within its run, or may have forgotten by now that it was.
  is_birth = not same_epoch or moved and (former_id or not remembers)
  -- A server whose durability was switched off while it ran may forget locks at its next crash.
  -- Only a birth makes it durable again.
  durable = durable and (is_birth or was_durable == '1')
else
  -- Another run of the server. It has kept everything only if it wrote everything to disk before it
  -- answered, then and now, and its data is its own and not a former master's.
  is_birth = not (was_durable == '1' and durable and same_epoch)
end
if is_birth then
  return write(later, clock, replicated, durable, group)
end
local same_marks = replicated == (was_replicated == '1') and durable == (was_durable == '1')
  and same_epoch and sentinels == stored_sentinels
if same_run and not moved and same_marks then
  return { clock, stored }
end
return write(since, birth, replicated, durable, group)
