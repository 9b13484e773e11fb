-- Closes a turn without an answer. One that is closed stays as it is.
local epoch, outcome, failure, state, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local turn = redis.call('HMGET', KEYS[3], 'epoch', 'outcome')
if not turn[1] then return {'not_found'} end
if turn[2] ~= '' then return {'closed', redis.call('HGETALL', KEYS[3])} end
local current = redis.call('HGET', KEYS[1], 'epoch')
if current ~= epoch then return {'fenced', current} end

redis.call('HSET', KEYS[3], 'outcome', outcome, 'failure', failure)
redis.call('HSET', KEYS[1], 'state', state, 'open', '', 'open_trace', '', 'active', decimal(now_ms()))
redis.call('PEXPIRE', KEYS[3], retention)
return {'closed', redis.call('HGETALL', KEYS[3])}
