-- Ends the lease of a turn. KEYS: meta, log, turn.
local epoch = ARGV[1]

local refusal = check_turn(epoch)
if refusal then return refusal end

local now = now_ms()
if tonumber(redis.call('HGET', KEYS[1], 'deadline')) > now then
  redis.call('HSET', KEYS[1], 'deadline', decimal(now))
end
return {'ok'}
