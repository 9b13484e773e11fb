-- Removes locks of a commit that was not made. KEYS: state of the scope. ARGV: '<change> <nonce> ', and the keys.
for i = 2, #ARGV do
  local lock = redis.call('HGET', KEYS[1], 'l:' .. ARGV[i])
  if lock and string.sub(lock, 1, #ARGV[1]) == ARGV[1] then redis.call('HDEL', KEYS[1], 'l:' .. ARGV[i]) end
end
return {'ok'}
