-- Begins or continues the erasure of a user. Returns sessions of the user, at most as many as given, and notes
-- them as erased from then on. KEYS: sessions, erasing and erased of the user.
local most, kept, patience = tonumber(ARGV[1]), ARGV[2], ARGV[3] -- the last two in ms

local now = decimal(now_ms())
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('HSET', KEYS[2], 'since', now) end
redis.call('PEXPIRE', KEYS[2], patience)
local found = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #found, 2 do redis.call('ZADD', KEYS[3], now, found[i]) end
redis.call('PEXPIRE', KEYS[3], kept)
return {'ok', found, redis.call('HGET', KEYS[2], 'since')}
