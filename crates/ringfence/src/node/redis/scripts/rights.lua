#!lua flags=no-writes
-- Rights: which of the given commands our user may run. Runs none of them, and cannot write.
-- ARGV: for each command the number of its words, then the words. Returns 1 or 0 for each command.
if not redis.acl_check_cmd then
  return redis.error_reply('ERR this server cannot be asked about rights')
end
local answers, at = {}, 1
while ARGV[at] do
  -- Never below 1, whatever the caller says, or this would be an endless loop.
  local words = math.max(tonumber(ARGV[at]) or 1, 1)
  local known, may = pcall(redis.acl_check_cmd, unpack(ARGV, at + 1, at + words))
  answers[#answers + 1] = known and may and 1 or 0
  at = at + words + 1
end
return answers
