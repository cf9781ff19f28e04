-- Who shares a claim. While somebody does, SHARED stands at the lock key: no token matches it, and it
-- lasts as long as the last of the readers. Two keys beside the record: a sorted set of tokens by the
-- last millisecond of each one's lease, and a hash with ballot and label of each. They count only
-- while SHARED stands there. SHARED without a reader is a value that another program has set: ours ends
-- with the last of them.
local SHARED = '$SHARED'
-- `mine[i]`: this token among the readers of claim i.
local mine = {}
for i = 1, claims do
  if values[i] == SHARED then
    local leases = string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
    local last = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')
    local till = redis.call('ZSCORE', leases, token)
    if not last[2] or tonumber(last[2]) < now_ms then
      values[i] = SHARED .. ' of another program'
    elseif till and tonumber(till) >= now_ms then
      local who = string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
      local ballot, label = string.match(redis.call('HGET', who, token) or '', '^(%d+):(.*)$')
      if not ballot then
        return redis.error_reply('DAMAGED ' .. i)
      end
      mine[i] = { ballot = tonumber(ballot), until_ms = tonumber(till), label = label }
    end
  end
end
