-- Enqueues a change of data that sessions share in the outbox of a session, on behalf of a turn. From then on
-- the change is made, no matter who holds the turn. KEYS: meta, log, turn, out.
local epoch, id, change, needs_user = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

local refusal = check_caller(epoch)
if refusal then return refusal end
local user = redis.call('HGET', KEYS[1], 'user') or ''
if needs_user and user == '' then return {'no_user'} end
-- Earlier changes are made first, so that calls need no order among commits.
if redis.call('EXISTS', KEYS[4]) == 1 then return {'pending'} end

redis.call('HSET', KEYS[4], id, change)
redis.call('HSET', KEYS[1], 'active', decimal(now_ms()))
return {'ok', user}
