-- Drops an entry of an index whose session is gone, unless the session was created again since.
-- KEYS: the index. ARGV: the session and when it was created.
if redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('ZREM', KEYS[1], ARGV[1]) end
return {'ok'}
