-- Makes a content the next version of an artifact. KEYS: meta, log, turn, arts, staged,
-- blob, and its pieces.
local epoch, name, sha, size, artifact = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_count, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

local refusal = held(epoch)
if refusal then return refusal end
local stored = redis.call('HGET', KEYS[6], 'stored')
if stored ~= size then return {'elsewhere', stored or '0'} end
local content = sha .. ' ' .. size .. ' '
local last = tonumber(redis.call('HGET', KEYS[4], 'n:' .. name) or 0)
for version = last, 1, -1 do
  local latest = redis.call('HGET', KEYS[4], 'v:' .. name .. '\0' .. decimal(version))
  if latest then
    if string.sub(latest, 1, #content) == content then return {'ok', decimal(version), latest} end
    break
  end
end
local meta = redis.call('HMGET', KEYS[1], 'arts', 'art_bytes')
local count, bytes = tonumber(meta[1] or 0) + 1, tonumber(meta[2] or 0) + tonumber(size)
if count > max_count or bytes > max_bytes then return {'artifacts_full', meta[1] or '0', meta[2] or '0'} end

local now = decimal(now_ms())
local version, value = decimal(last + 1), content .. now .. ' ' .. artifact
redis.call('HSET', KEYS[4], 'n:' .. name, version, 'v:' .. name .. '\0' .. version, value)
if redis.call('HINCRBY', KEYS[6], 'refs', 1) == 1 then
  redis.call('ZREM', KEYS[5], sha .. '-' .. size)
  for i = 6, #KEYS do redis.call('PERSIST', KEYS[i]) end
end
redis.call('HSET', KEYS[1], 'arts', decimal(count), 'art_bytes', decimal(bytes), 'active', now)
return {'ok', version, value}
