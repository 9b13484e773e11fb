-- Says whose a session is to those who change state that it shares, in nobody's name.
-- KEYS: meta.
local refusal = unknown('')
if refusal then return refusal end
return {'ok', redis.call('HGET', KEYS[1], 'user')}
