-- Makes a content the next version of an artifact. KEYS: meta, log, turn, arts, staged, blob, and its pieces.
local epoch, name, sha, size, artifact = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_count, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

local refusal = check_turn(epoch)
if refusal then return refusal end
local stored = redis.call('HGET', KEYS[6], 'stored')
if stored ~= size then return {'elsewhere', stored or '0'} end

local answer, now = put_version(KEYS[4], KEYS[1], KEYS[5], 6, name, sha, size, artifact, max_count, max_bytes)
if now then redis.call('HSET', KEYS[1], 'active', now) end
return answer
