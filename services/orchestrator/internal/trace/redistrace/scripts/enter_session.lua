-- Enters a trace in the list of its session before it is claimed, and replies whether the session is erased. An
-- erasure sets its mark before it reads the list.
-- KEYS: traces, erased of the session. ARGV: trace, how long the list is kept in ms.
-- Reply: 1 when the session is erased
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('EXISTS', KEYS[2])
