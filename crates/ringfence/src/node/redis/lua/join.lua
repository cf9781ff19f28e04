-- Join: the one place, beside init, where a node's birth record is written.
-- KEYS: born. ARGV: run_id, 1 if durable now, 1 if never promoted from a replica, then the group:
-- nodes, window in us, quarantine in ms, grace in ms. Answers the clock and what stands there now.
local run_id, durable, never_promoted = ARGV[1], ARGV[2] == '1', ARGV[3] == '1'
local time = redis.call('TIME')
local clock = string.format('%.0f', time[1] * 1000000 + time[2])

local function write(since, birth, lasting, group)
  local born = '1 ' .. run_id .. ' ' .. since .. ' ' .. birth .. (lasting and ' 1 ' or ' 0 ') .. group
  redis.call('SET', KEYS[1], born)
  return { clock, born }
end

local stands = redis.call('GET', KEYS[1])
if not stands then
  return write(clock, clock, durable, table.concat(ARGV, ' ', 4, 7))
end
local owner, since, birth, lasted, group =
  string.match(stands, '^1 (%x+) (%d+) (%d+) ([01]) (%d+ %d+ %d+ %d+)$')
if not owner then
  return redis.error_reply('DAMAGED 0')
end
if owner == run_id then
  -- A server whose durability was switched off while it ran may forget at its next crash.
  if lasted == '1' and not durable then
    return write(since, birth, false, group)
  end
  return { clock, stands }
end
-- Another run of the server. It has kept everything only if it wrote everything to disk before it
-- answered, then and now, and its data is its own and not a former master's.
if lasted == '1' and durable and never_promoted then
  return write(since, birth, true, group)
end
return write(clock, clock, durable, group)
