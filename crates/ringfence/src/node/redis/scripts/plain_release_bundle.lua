-- Plain Redlock: compare and delete, for many keys at once. ARGV: the token of each. Reply: for each
-- key 1 if it is released, or false: then the client asks for it by itself, since a key that is gone
-- and one of a foreign type look alike here.
local values, ours, said = redis.call('MGET', unpack(KEYS)), {}, {}
for i = 1, #KEYS do
  said[i] = false
  if values[i] == ARGV[i] then
    said[i] = 1
    ours[#ours + 1] = KEYS[i]
  end
end
if ours[1] then
  redis.call('DEL', unpack(ours))
end
return said
