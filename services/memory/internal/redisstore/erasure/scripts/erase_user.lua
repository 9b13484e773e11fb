-- Removes what a user without sessions still has, so that new sessions can begin. The contents of artifacts are
-- removed before. KEYS: sessions, erasing, state, arts, reqs, decided and staged of the user. ARGV: how many
-- artifacts there were when their contents were removed.
local arts = redis.call('HMGET', KEYS[4], 'arts', 'art_bytes')
local count = arts[1] or '0'

local one = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '-inf', 'LIMIT', 0, 1)
if #one > 0 or count ~= ARGV[1] then return {'changed'} end
local had = {'ok', redis.call('HGET', KEYS[3], 'keys') or '0', count, arts[2] or '0', decimal(now_ms())}
redis.call('UNLINK', unpack(KEYS))
return had
