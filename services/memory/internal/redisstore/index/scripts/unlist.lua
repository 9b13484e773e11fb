-- Drops an entry of an index whose session is gone, unless it was made again since.
-- KEYS: the index.
if redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('ZREM', KEYS[1], ARGV[1]) end
return {'ok'}
