-- Returns the user of a session, for a change of shared state without a turn. KEYS: meta.
local refusal = check_caller('')
if refusal then return refusal end
return {'ok', redis.call('HGET', KEYS[1], 'user')}
