-- Release: a holder is done, or an attempt is withdrawn.
-- ARGV: ballot, 1 if final, 1 if the fate of the acquire is unknown, 1 if the place in line is kept,
-- for how many ms others are kept out; and if the caller has a ticket: the ticket, and how long it
-- stands in ms.
local ballot, final, fate_unknown = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1'
local stays, keep, ticket = ARGV[8] == '1', final and tonumber(ARGV[9]) or 0, ARGV[10]
-- A late undo of an earlier attempt must not delete the key of a later one.
for i = 1, claims do
  local hers = mine[i] or values[i] == token and seated(i)
  if hers and hers.ballot > ballot then
    return reply('newer')
  end
end
local held, gone = not_held(true)
for i = 1, ticket and stays and claims or 0 do
  if values[i] == token or mine[i] then
    -- Its ticket left the line with the grant that is now taken back.
    enter(token, { ticket }, tonumber(ARGV[11]))
    break
  end
end
for i = 1, claims do
  local reader = mine[i]
  local ours = values[i] == token or reader
  local was_first = false
  if ticket and not stays and lines[i] then
    -- The first itself, or the first that was not to share: others now come first.
    local line, rank = lines[i], redis.call('ZRANK', lines[i].order, ticket)
    was_first = rank == 0 or rank and not shares[i] and line.shared
      and rank == redis.call('ZLEXCOUNT', line.order, '[s', '(s' .. ticket)
    drop(i, { ticket })
  end
  if reader then
    unshare(i, reader, ballot, final, fate_unknown)
  else
    local record, tombstone = records[i], nil
    -- The lease may have ended before its holder, who released it in time, could tell this node. If the
    -- ballot is closed the node was told before. A key that is no string is somebody else's.
    local anew = keep > 0 and fate_unknown and not values[i] and ballot > record.closed
      and ballot <= ceiling and redis.call('EXISTS', KEYS[i]) == 0
    if keep > 0 and ours or anew then
      -- A tombstone, which no token matches. It is a holder like any other: it has a seat, and
      -- its end is when the claim becomes free.
      local was = record.seat and record.seat.token == token and record.seat
        or { ballot = 0, label = '' }
      local id = string.match(token, '^(%x%x%x%x%x%x%x%x%x%x)%.') or '0000000000'
      values[i] = 'kept.' .. id
      redis.call('SET', KEYS[i], values[i], 'PX', keep)
      tombstone = {
        ballot = was.ballot, until_ms = now_ms + keep, token = values[i], label = was.label,
      }
    end
    retire(i, ours, ballot, final, fate_unknown, tombstone)
  end
  if lines[i] and not values[i] and (ours or was_first) then
    tell(i, stays and ticket, false)
  elseif lines[i] and values[i] == SHARED and was_first then
    tell(i, stays and ticket, true)
  end
end
for _, id in ipairs(told) do
  wake_client(id, after[id])
end
if held then
  return reply('held', holder(held))
end
return reply(gone and 'gone' or 'released')
