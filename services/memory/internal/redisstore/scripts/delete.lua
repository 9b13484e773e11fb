-- Puts the mark of a deleted session in the place of what is known of it. What other keys
-- hold nobody can reach any more; the caller removes them, and then the user, which says that
-- there is something left to remove. Until then the mark stays. KEYS: meta, log, state, reqs.
local idle = tonumber(ARGV[1]) -- only when nothing happened for so many ms; 0: always

local meta = redis.call('HMGET', KEYS[1], 'deleted', 'schema', 'epoch', 'user', 'open', 'active', 'deadline')
if meta[1] then return meta[4] and {'ok', meta[4]} or {'gone'} end
if not meta[2] then return {'no_session'} end
if meta[2] ~= schema then return {'schema', meta[2]} end
local now = now_ms()
local open = meta[5] ~= '' and tonumber(meta[7]) > now -- a turn that nobody holds is not
if idle > 0 and (open or tonumber(meta[6]) + idle > now) then return {'active'} end

redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[1], 'deleted', decimal(now), 'epoch', meta[3], 'user', meta[4])
return {'ok', meta[4]}
