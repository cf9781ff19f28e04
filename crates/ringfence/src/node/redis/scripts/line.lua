-- Who waits for each claim, earliest first. A ticket is a lease: whoever stops refreshing it is gone.
--
-- A ticket is written as its time in 20 digits and its id, so that tickets sort as text. Two sorted
-- sets hold them: `order` by text, with `e` and the ticket once more for one that also waits for
-- another name that is held, and with `s` for one that is to share the claim; `lease` by the last millisecond at which the ticket stands. The mark
-- says that there may be a line, so that nobody looks for one in vain: until when the sets are kept,
-- and `e` or `s` if some ticket may stand twice. All three expire by themselves.
local lines = {}
-- What goes into one command: Lua's stack is bounded.
local BATCH = 500
local open, again, drop, ahead_of

-- Makes what follows, and takes out of the lines who is no longer there. Most locks are waited for
-- by nobody, and a function costs something even if it is not called: they are made when needed.
local function look_at_lines()
  function open(i)
    local mark = KEYS[2 * claims + i]
    local kept, elsewhere, shared = string.match(values[2 * claims + i] or '', '^(%d+)(e?)(s?)$')
    lines[i] = {
      mark = mark,
      order = (string.gsub(mark, '}:$QUEUE_MARK', '}:$QUEUE_ORDER', 1)),
      lease = (string.gsub(mark, '}:$QUEUE_MARK', '}:$QUEUE_LEASES', 1)),
      kept_until = tonumber(kept or 0),
      elsewhere = elsewhere == 'e',
      shared = shared == 's',
    }
    return lines[i]
  end

  -- Adds each of the tickets once more, with `letter` before it, or takes that out again.
  function again(line, letter, add, tickets, from, to)
    local members = {}
    for j = from, to do
      if add then
        members[#members + 1] = '0'
      end
      members[#members + 1] = letter .. tickets[j]
    end
    redis.call(add and 'ZADD' or 'ZREM', line.order, unpack(members))
  end

  function drop(i, tickets)
    local line = lines[i]
    for from = 1, #tickets, BATCH do
      local to = math.min(from + BATCH - 1, #tickets)
      redis.call('ZREM', line.lease, unpack(tickets, from, to))
      redis.call('ZREM', line.order, unpack(tickets, from, to))
      if line.elsewhere then
        again(line, 'e', false, tickets, from, to)
      end
      if line.shared then
        again(line, 's', false, tickets, from, to)
      end
    end
    if redis.call('EXISTS', line.lease) == 0 then
      redis.call('DEL', line.mark, line.order)
      lines[i], values[2 * claims + i] = nil, false
    end
  end

  -- How many are ahead of `ticket` and in its way in the line of claim i; of all if it is nil. Those
  -- who share do not mind each other.
  function ahead_of(i, ticket)
    local line = lines[i]
    if not line then
      return 0
    end
    local all = ticket and redis.call('ZRANK', line.order, ticket) or redis.call('ZCARD', line.lease)
    if shares[i] and line.shared then
      return all - redis.call('ZLEXCOUNT', line.order, '[s', ticket and '(s' .. ticket or '(t')
    end
    return all
  end

  for i = 1, claims do
    if values[2 * claims + i] then
      local over = redis.call('ZRANGEBYSCORE', open(i).lease, '-inf', string.format('(%.0f', now_ms))
      if #over > 0 then
        drop(i, over)
      end
    end
  end
end

for i = 1, claims do
  if values[2 * claims + i] then
    look_at_lines()
    break
  end
end
