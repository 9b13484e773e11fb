-- Says whose a session is to those who may write in its name. KEYS: meta, log, the turn in
-- whose name.
local epoch = ARGV[1] -- may be empty

local refusal = unknown(epoch)
if refusal then return refusal end
return {'ok', redis.call('HGET', KEYS[1], 'user')}
