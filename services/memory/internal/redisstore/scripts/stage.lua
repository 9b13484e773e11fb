-- Says how much of a content is stored, and makes room for one that is not known.
-- KEYS: meta, log, turn, blob, staged.
local epoch, size, max_bytes, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local max_count, name = tonumber(ARGV[5]), ARGV[6] -- the name of the content: <sha>-<size>

local refusal = held(epoch)
if refusal then return refusal end
local blob = redis.call('HMGET', KEYS[4], 'stored', 'hash')
if blob[1] and tonumber(blob[1]) == size then return {'ok', blob[1], blob[2]} end
local meta = redis.call('HMGET', KEYS[1], 'arts', 'art_bytes')
local now, count, bytes = now_ms(), tonumber(meta[1] or 0), tonumber(meta[2] or 0)
for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[5], '+inf', '(' .. decimal(now))) do
  if other ~= name then count, bytes = count + 1, bytes + tonumber(string.match(other, '%d+$')) end
end
if count + 1 > max_count or bytes + size > max_bytes then return {'artifacts_full', decimal(count), decimal(bytes)} end
if blob[1] then return {'ok', blob[1], blob[2]} end

-- Its pieces are forgotten with it, whenever they came: all at one time.
local ends = decimal(now + keep)
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', decimal(now))
redis.call('ZADD', KEYS[5], ends, name)
redis.call('PEXPIREAT', KEYS[5], ends)
redis.call('HSET', KEYS[4], 'stored', '0', 'refs', '0', 'hash', '', 'until', ends)
redis.call('PEXPIREAT', KEYS[4], ends)
return {'ok', '0', ''}
