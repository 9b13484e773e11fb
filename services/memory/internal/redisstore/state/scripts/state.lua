-- Changes the state of a session. KEYS: meta, log, the turn on whose behalf, state, reqs.
local id, if_revision, epoch = ARGV[1], ARGV[2], ARGV[3] -- the last two may be empty

local refusal = check_caller(epoch)
if refusal then return refusal end
local answer = request(KEYS[4], KEYS[5], id, if_revision, 4, change)
if answer[1] == 'ok' then redis.call('HSET', KEYS[1], 'active', decimal(now_ms())) end
return answer
