-- Where most releases end: one claim, held alone, given back for good, and not kept from others.
-- Either nobody waits for it, or the line is of the usual sort. What is said here the long way below
-- would say too; whatever is unusual goes there.
local ticket = ARGV[10]
if #KEYS == 4 and values[1] == ARGV[4] and values[2] and ARGV[6] == '1' and ARGV[9] == '0'
  and ARGV[8] == '0' and (not values[3] or order) then
  local after, floor =
    retired(values[2], tonumber(ARGV[5]), ARGV[5], string.format(':%.0f:0', now_ms))
  if after then
    -- Deleted first: a server at its memory limit lets a script write that has freed something.
    redis.call('DEL', KEYS[1])
    redis.call('SET', KEYS[2], after, 'PX', ARGV[3])
    if order then
      -- One more than are told, since the caller may be among them.
      local first, told = redis.call('ZRANGE', order, 0, 2), 0
      if first[1] == ticket and not first[2] then
        redis.call('DEL', KEYS[3], order, lease)
      elseif ticket and redis.call('ZREM', lease, ticket) > 0 then
        redis.call('ZREM', order, ticket)
      end
      for _, other in ipairs(first) do
        if other ~= ticket and told < 2 then
          -- The first in line, and the next, to come if the first does not. The grace stands at the
          -- end of born.
          local wait = told == 0 and '0' or string.match(ARGV[1], '^.* (%d+)$')
          wake_client(string.sub(other, 21), wait)
          told = told + 1
        end
      end
    end
    return { clock, floor, 'released' }
  end
end
