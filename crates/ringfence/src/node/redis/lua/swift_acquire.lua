-- Where most acquires end: one claim, to be held alone by a caller who does not stand in line, free,
-- and nobody waits for it. What is said here the long way below would say too, at three times the
-- price; whatever is unusual goes there.
if #KEYS == 4 and not values[1] and not values[3] and not ARGV[8]
  and not string.find(ARGV[4], ' ', 1, true) then
  local ballot, fence, closed, since = tonumber(ARGV[5]), '0', '0', '0'
  if values[2] then
    fence, closed, since = string.match(values[2], '^2:(%d+):(%d+):(%d+):0$')
  end
  if fence and ballot > math.max(ground, tonumber(fence)) and ballot <= ceiling
    and (closed == fence or tonumber(closed) <= MAX) and tonumber(since) <= MAX
    and redis.call('SET', KEYS[1], ARGV[4], 'NX', 'PX', ARGV[6]) then
    redis.call('SET', KEYS[2], '2:' .. ARGV[5] .. ':' .. closed .. ':' .. since .. ':0:' .. ARGV[5]
      .. string.format(':%.0f:', now_ms + ARGV[6]) .. ARGV[4] .. ':' .. ARGV[7],
      'PX', tonumber(ARGV[3]) < tonumber(ARGV[6]) and ARGV[6] or ARGV[3])
    return { clock, ballot, 'granted' }
  end
end
