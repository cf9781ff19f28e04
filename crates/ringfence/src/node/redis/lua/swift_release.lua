-- Where most releases end: one claim, held alone, given back for good, not kept from others, and
-- nobody waits for it. What is said here the long way below would say too; whatever is unusual goes
-- there.
if #KEYS == 4 and values[1] == ARGV[4] and values[2] and not values[3] and not ARGV[10]
  and ARGV[6] == '1' and ARGV[9] == '0' then
  local ballot = tonumber(ARGV[5])
  local fence, closed, hers, owner =
    string.match(values[2], '^2:(%d+):(%d+):%d+:[01]:(%d+):%d+:([^:]+):')
  if owner == ARGV[4] and tonumber(hers) <= ballot and ballot <= ceiling
    and tonumber(fence) <= MAX and tonumber(closed) <= MAX then
    redis.call('DEL', KEYS[1])
    local floor = math.max(ground, tonumber(fence), ballot)
    -- Writing a number costs more than finding out that its text is known.
    fence = floor == ballot and ARGV[5] or string.format('%.0f', floor)
    closed = tonumber(closed) > ballot and closed or ARGV[5]
    redis.call('SET', KEYS[2], '2:' .. fence .. ':' .. closed .. string.format(':%.0f:0', now_ms),
      'PX', ARGV[3])
    return { clock, floor, 'released' }
  end
end
