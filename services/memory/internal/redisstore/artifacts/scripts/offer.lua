-- Says to the holder of a turn whose its session is, and how much of a content it has.
-- KEYS: meta, log, turn; and the blob, if the question is about one.
local epoch = ARGV[1]

local refusal = held(epoch)
if refusal then return refusal end
return {'ok', redis.call('HGET', KEYS[1], 'user') or '', KEYS[4] and redis.call('HGET', KEYS[4], 'stored') or ''}
