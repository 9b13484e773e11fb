-- Takes a trace from its owner: nobody writes to it any more, whether or not it is there yet.
-- KEYS: record. ARGV: ms for which that is kept. Reply: record, tally of what was removed before, user
redis.call('HSETNX', KEYS[1], 'erased', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HMGET', KEYS[1], 'record', 'last', 'decisions', 'user')
