-- Removes versions of artifacts. KEYS: meta, log, turn, arts; and for each version its blob
-- and its pieces. ARGV: epoch; and for each version its field, its size and how many keys.
local epoch = ARGV[1]

local refusal = held(epoch)
if refusal then return refusal end

local key, removed, bytes = 5, 0, 0
for i = 2, #ARGV, 3 do
  local field, size, keys = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if redis.call('HDEL', KEYS[4], field) == 1 then
    removed, bytes = removed + 1, bytes + size
    if redis.call('HINCRBY', KEYS[key], 'refs', -1) == 0 then
      for k = key, key + keys - 1 do redis.call('UNLINK', KEYS[k]) end
    end
  end
  key = key + keys
end
if removed > 0 then
  redis.call('HINCRBY', KEYS[1], 'arts', -removed)
  redis.call('HINCRBY', KEYS[1], 'art_bytes', decimal(0 - bytes)) -- not -0
  redis.call('HSET', KEYS[1], 'active', decimal(now_ms()))
end
return {'ok'}
