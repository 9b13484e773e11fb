-- Empties a session. KEYS: meta, out, state, log, arts; then jrnl of the kept steps, the rounds of agents with
-- their journals, and jrnl of the step whose calls wait; then the contents of its artifacts with their pieces.
local epoch, waiting = ARGV[1], ARGV[2] -- of the session as it was read; only a turn stores artifacts

local bar = check_session()
if bar then return bar end
local meta = redis.call('HMGET', KEYS[1], 'schema', 'open', 'open_trace', 'epoch', 'waiting')
if not meta[1] then return {'no_session'} end
if meta[2] ~= '' then return {'session_busy', meta[2], meta[3]} end
if meta[4] ~= epoch or (meta[5] or '') ~= waiting or redis.call('EXISTS', KEYS[2]) == 1 then return {'changed'} end

local revision = redis.call('HGET', KEYS[3], 'rev')
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
if revision then redis.call('HSET', KEYS[3], 'rev', decimal(tonumber(revision) + 1)) end
redis.call('HDEL', KEYS[1], 'summarized', 'summary', 'art_bytes', 'arts', 'waiting', 'untrusted', 'agents', 'round_bytes')
local seq, saved = unpack(redis.call('HMGET', KEYS[1], 'seq', 'saved'))
if saved then redis.call('HSET', KEYS[1], 'saved', seq) end
redis.call('HSET', KEYS[1], 'count', '0', 'bytes', '0', 'active', decimal(now_ms()))
return {'ok'}
