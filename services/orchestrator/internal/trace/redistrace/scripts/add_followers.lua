-- Counts the clients that follow a trace. KEYS: followers. ARGV: how many come or leave, how long the count is kept in ms.
-- Reply: the count
local n = redis.call('HINCRBY', KEYS[1], 'n', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return n
