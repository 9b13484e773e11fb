-- Replaces what is known of a session by the mark of a deleted one. No caller can reach the other keys any more.
-- The Go code removes them, and last the user field of the mark, which says that data are left to remove. Until
-- then the mark does not expire. It counts what there was.
-- KEYS: meta, log, state, reqs.
local idle = tonumber(ARGV[1]) -- only when nothing happened for so many ms (0 means always)

local meta = redis.call('HMGET', KEYS[1], 'deleted', 'schema', 'epoch', 'user', 'open', 'active', 'deadline',
  'count', 'turns', 'arts', 'art_bytes', 'waiting', 'agents')
if meta[1] then return {meta[4] and 'ok' or 'gone', redis.call('HGETALL', KEYS[1])} end
if not meta[2] then return {'no_session'} end
if meta[2] ~= schema then return {'schema', meta[2]} end
local now = now_ms()
local open = meta[5] ~= '' and tonumber(meta[7]) > now -- a turn with an expired lease does not count
if idle > 0 and (open or tonumber(meta[6]) + idle > now) then return {'active'} end

local mark = {'deleted', decimal(now), 'epoch', meta[3], 'user', meta[4], 'agents', meta[13] or ''}
local had = {messages = meta[8], turns = meta[9], state_keys = redis.call('HGET', KEYS[3], 'keys'), artifacts = meta[10],
  artifact_bytes = meta[11], waiting_calls = (meta[12] or '') ~= '' and '1'}
for kind, count in pairs(had) do
  if count and count ~= '0' then mark[#mark + 1], mark[#mark + 2] = 'n:' .. kind, count end
end
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[1], unpack(mark))
return {'ok', redis.call('HGETALL', KEYS[1])}
