-- Join: the one place, beside init, where a node's birth record is written. It follows the rule in
-- ledger/birth.rs, for clients without Sentinels.
-- KEYS: born. ARGV: the run id and the replication id that the client saw (`-` if the server does not
-- tell), 1 if every write is on disk before it is answered, repl-backlog-ttl in s (`-` if not known),
-- then the group: nodes, window in us, quarantine in ms, grace in ms.
-- Answers the clock and what stands there now, or nothing if this is not the server that the client saw.
local run_id, replication_id, synced, backlog_ttl = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock = string.format('%.0f', now)

-- Between the client's look and this script the server may have been demoted, or promoted.
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local id = string.match(replication, '\nmaster_replid:(%x+)') or '-'
if string.match(server, '\nrun_id:(%x+)') ~= run_id or id ~= replication_id
  or not string.find(replication, '\nrole:master\r', 1, true) then
  return { clock, false }
end
local former_id = not string.find(replication, '\nmaster_replid2:0+\r')
local has_replicas = not string.find(replication, '\nconnected_slaves:0\r', 1, true)

local function write(since, birth, replicated, durable, group)
  local born = '$BORN_VERSION ' .. run_id .. ' ' .. id .. ' - ' .. (replicated and '1 ' or '0 ') .. since .. ' '
    .. birth .. (durable and ' 1 ' or ' 0 ') .. group
  redis.call('SET', KEYS[1], born)
  return { clock, born }
end

local stands = redis.call('GET', KEYS[1])
if not stands then
  local replicated = has_replicas or former_id
  return write(clock, clock, replicated, synced and not replicated, table.concat(ARGV, ' ', 5, 8))
end
local owner, old_id, epoch, marked, since, birth, lasted, group =
  string.match(stands, '^$BORN_VERSION (%x+) ([%x%-]+) ([%d%-]+) ([01]) (%d+) (%d+) ([01]) (%d+ %d+ %d+ %d+)$')
-- What cannot be read, and what Sentinels vouch for, is not ours to overwrite: the client says so.
if not owner or epoch ~= '-' then
  return { clock, stands }
end
local same_run = owner == run_id
if same_run and id == '-' then
  -- A server that stops telling its id cannot be compared.
  id = old_id
end
local moved = same_run and id ~= old_id
-- A replica is seen, or was there: the first one gave the server another id.
local replicated = marked == '1' or moved or has_replicas or former_id
local durable = synced and not replicated
local quarantine_ms = string.match(group, '^%d+ %d+ (%d+)')
-- Zero is for ever.
local remembers = backlog_ttl and (backlog_ttl == 0 or backlog_ttl * 1000 >= tonumber(quarantine_ms))

local is_birth
if same_run then
  -- Promoted within its run; or it would have forgotten by now that it was.
  is_birth = moved and (former_id or not remembers)
  -- A server whose durability was switched off while it ran may forget at its next crash; only a birth
  -- makes it durable again.
  durable = durable and (is_birth or lasted == '1')
else
  -- Another run of the server. It has kept everything only if it wrote everything to disk before it
  -- answered, then and now, and its data is its own and not a former master's.
  is_birth = not (lasted == '1' and durable)
end
if is_birth then
  -- Two births are two incarnations, even if the clock was set back.
  local later = string.format('%.0f', math.max(now, since + 1))
  return write(later, clock, replicated, durable, group)
end
local same_marks = replicated == (marked == '1') and durable == (lasted == '1')
if same_run and not moved and same_marks then
  return { clock, stands }
end
return write(since, birth, replicated, durable, group)
