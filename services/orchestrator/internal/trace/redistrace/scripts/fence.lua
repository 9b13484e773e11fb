-- Takes a trace from its owner: no owner writes to it any more, whether or not it exists yet.
-- KEYS: record, child sessions. ARGV: how long that is kept in ms. Reply: record, last sequence and number of
-- decisions of an earlier erasure, user, child sessions
redis.call('HSETNX', KEYS[1], 'erased', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local held = redis.call('HMGET', KEYS[1], 'record', 'last', 'decisions', 'user')
held[5] = redis.call('ZREVRANGE', KEYS[2], 0, -1)
return held
