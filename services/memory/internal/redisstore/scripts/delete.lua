-- Puts the mark of a deleted session in the place of what is known of it. What other keys
-- hold nobody can reach any more; the caller removes them and then what the mark has beside
-- its epoch. KEYS: meta, log, state, reqs.
local retention, idle = ARGV[1], tonumber(ARGV[2]) -- idle: only when nothing happened for so many ms; 0: always

local meta = redis.call('HMGET', KEYS[1], 'deleted', 'schema', 'epoch', 'user', 'open', 'active')
if meta[1] then return {'ok', meta[4] or ''} end
if not meta[2] then return {'no_session'} end
if meta[2] ~= '2' then return {'schema', meta[2]} end
local now = now_ms()
if idle > 0 and (meta[5] ~= '' or tonumber(meta[6]) + idle > now) then return {'active'} end

redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[1], 'deleted', decimal(now), 'epoch', meta[3], 'user', meta[4])
redis.call('PEXPIRE', KEYS[1], retention)
return {'ok', meta[4]}
