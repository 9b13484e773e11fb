-- Ends an erasure. KEYS: the mark. ARGV: how long it is kept in ms. Reply: its fields and values
local time = redis.call('TIME')
redis.call('HSETNX', KEYS[1], 'ended', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HGETALL', KEYS[1])
