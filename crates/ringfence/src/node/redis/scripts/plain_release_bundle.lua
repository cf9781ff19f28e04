-- Plain Redlock: compare and delete, for many keys at once. ARGV: the token of each key.
-- Reply: for each key 1 if it was released, else false. Then the client releases it by itself,
-- since MGET does not tell an absent key from one of a foreign type.
local values, ours, replies = redis.call('MGET', unpack(KEYS)), {}, {}
for i = 1, #KEYS do
  replies[i] = false
  if values[i] == ARGV[i] then
    replies[i] = 1
    ours[#ours + 1] = KEYS[i]
  end
end
if ours[1] then
  redis.call('DEL', unpack(ours))
end
return replies
