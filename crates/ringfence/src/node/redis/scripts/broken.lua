-- The holds of a claim that operators broke, latest last, one line each: time, new fence, ballot
-- and id of the hold (`-` if it had none), then operator, label and reason. Tabs separate them.
local BROKEN = '^(%d+)\t(%d+)\t(%d+)\t(%S+)\t([^\t]*)\t([^\t]*)\t([^\t]*)$'

local function broken_key(i)
  return (string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:$BROKEN', 1))
end

-- The answer for a token that lost its claims: the latest break of its hold, else `answer`.
local function or_broken(answer, ...)
  local id = string.match(token, '^(%x%x%x%x%x%x%x%x%x%x)%.')
  for i = 1, id and claims or 0 do
    if values[i] ~= token and not mine[i] then
      local found
      for line in string.gmatch(redis.call('GET', broken_key(i)) or '', '[^\n]+') do
        local at, fence, ballot, owner, by, label, reason = string.match(line, BROKEN)
        if owner == id then
          found = reply('broken', tonumber(at), tonumber(fence), tonumber(ballot), owner, by, label,
            reason)
        end
      end
      if found then
        return found
      end
    end
  end
  return reply(answer, ...)
end
