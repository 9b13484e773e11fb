-- Stores the request to stop a trace, if the trace exists. KEYS: record. ARGV: reason. Reply: 1 if it exists
local held = redis.call('HMGET', KEYS[1], 'epoch', 'erased')
if not held[1] or held[2] then return 0 end
redis.call('HSETNX', KEYS[1], 'stop', ARGV[1])
return 1
