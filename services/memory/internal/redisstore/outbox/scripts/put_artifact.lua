-- Makes a content the next version of an artifact of a user, or rejects it, once for each id.
-- KEYS: arts, decided, staged and erased of the user, the blob there, and its pieces.
local id, name, sha, size, artifact = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_count, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local waiting = '9007199254740991' -- as in apply_commit.lua

if is_erased(KEYS[4], id) then return {'deleted'} end
if redis.call('ZSCORE', KEYS[2], id) then -- another caller drained the outbox: which version did it make?
  local last = tonumber(redis.call('HGET', KEYS[1], 'n:' .. name) or 0)
  for version = last, math.max(1, last - max_count), -1 do
    local stored = redis.call('HGET', KEYS[1], 'v:' .. name .. '\0' .. decimal(version))
    if stored and string.sub(stored, -1 - #artifact) == ' ' .. artifact then return {'ok', decimal(version), stored} end
  end
  return {'decided'}
end
redis.call('ZADD', KEYS[2], waiting, id)
-- The pieces may be gone: expired, or removed with the versions that had them.
if redis.call('EXISTS', unpack(KEYS, 5)) < #KEYS - 4 then return {'gone'} end
local answer = put_version(KEYS[1], KEYS[1], KEYS[3], 5, name, sha, size, artifact, max_count, max_bytes)
return answer
