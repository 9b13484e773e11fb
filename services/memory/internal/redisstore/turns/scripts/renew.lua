-- Renews the lease of a turn. KEYS: meta, log, turn.
local epoch, lease = ARGV[1], tonumber(ARGV[2])

local refusal = check_turn(epoch)
if refusal then return refusal end

redis.call('HSET', KEYS[1], 'deadline', decimal(now_ms() + lease))
return {'ok'}
