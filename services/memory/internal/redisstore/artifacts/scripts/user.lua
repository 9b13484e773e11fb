-- Returns to the holder of a turn the user of its session, and how much of a content the session has.
-- KEYS: meta, log, turn; and the blob, if a content is asked for.
local epoch = ARGV[1]

local refusal = check_turn(epoch)
if refusal then return refusal end
return {'ok', redis.call('HGET', KEYS[1], 'user') or '', KEYS[4] and redis.call('HGET', KEYS[4], 'stored') or ''}
