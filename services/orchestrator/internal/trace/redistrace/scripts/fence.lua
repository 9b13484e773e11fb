-- Takes a trace from its owner: nobody writes to it any more, whether or not it is there yet.
-- KEYS: record, sessions below. ARGV: ms for which that is kept. Reply: record, tally of what was
-- removed before, user, sessions below
redis.call('HSETNX', KEYS[1], 'erased', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local held = redis.call('HMGET', KEYS[1], 'record', 'last', 'decisions', 'user')
held[5] = redis.call('ZREVRANGE', KEYS[2], 0, -1)
return held
