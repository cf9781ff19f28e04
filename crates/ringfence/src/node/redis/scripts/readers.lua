-- The readers of each claim. While a claim has readers, the value of its lock key is SHARED. No
-- token equals SHARED, and it expires with the last reader. Two keys beside the record: a sorted
-- set of tokens by the last millisecond of each lease, and a hash of ballot and label by token.
-- They count only while the lock key is SHARED. SHARED without a reader was written by another
-- program.
local SHARED = '$SHARED'
-- `mine[i]`: this token's entry among the readers of claim i.
local mine = {}
for i = 1, claims do
  if values[i] == SHARED then
    local leases = string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
    local last = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')
    local until_ms = redis.call('ZSCORE', leases, token)
    if not last[2] or tonumber(last[2]) < now_ms then
      values[i] = SHARED .. ' of another program'
    elseif until_ms and tonumber(until_ms) >= now_ms then
      local labels = string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
      local ballot, label = string.match(redis.call('HGET', labels, token) or '', '^(%d+):(.*)$')
      if not ballot then
        return redis.error_reply('DAMAGED ' .. i)
      end
      mine[i] = { ballot = tonumber(ballot), until_ms = tonumber(until_ms), label = label }
    end
  end
end
