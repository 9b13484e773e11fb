-- Removes versions of artifacts. KEYS: meta, log, turn, arts; and for each version its blob and its pieces.
-- ARGV: epoch; and for each version its field, its size and its number of keys.
local epoch = ARGV[1]

local refusal = check_turn(epoch)
if refusal then return refusal end

if drop_versions(KEYS[4], KEYS[1], 5, 2) > 0 then redis.call('HSET', KEYS[1], 'active', decimal(now_ms())) end
return {'ok'}
