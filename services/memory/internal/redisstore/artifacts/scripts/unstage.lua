-- Deletes a content that is staged in a session, unless an artifact has it. KEYS: meta, log, turn, staged, blob,
-- and its pieces.
local epoch, name = ARGV[1], ARGV[2] -- the name of the content: <sha>-<size>

local refusal = check_turn(epoch)
if refusal then return refusal end
if redis.call('HGET', KEYS[5], 'refs') ~= '0' then return {'ok'} end

for i = 5, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('ZREM', KEYS[4], name)
return {'ok'}
