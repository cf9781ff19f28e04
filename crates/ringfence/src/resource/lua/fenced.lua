-- Runs one command on a fenced key. KEYS: the key, its marks.
-- ARGV: 'read' or 'write', fence, keep_ms, the command, and its arguments after the key.
local refusal = admit(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
if refusal then
  return refusal
end
return redis.call(ARGV[4], KEYS[1], unpack(ARGV, 5))
