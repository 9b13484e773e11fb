-- Replaces the oldest messages by a summary. KEYS: meta, log.
local seq, summarized, held, weight = ARGV[1], ARGV[2], ARGV[3], ARGV[4] -- of the session as it was read
local last, count, bytes, summary = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local waiting = ARGV[9] -- of the session as it was read too: the messages of a turn whose calls wait stay

local bar = check_session()
if bar then return bar end
local meta = redis.call('HMGET', KEYS[1], 'schema', 'open', 'open_trace', 'seq', 'summarized', 'count', 'bytes', 'waiting')
if not meta[1] then return {'no_session'} end
if meta[2] ~= '' then return {'session_busy', meta[2], meta[3]} end
if meta[4] ~= seq or (meta[5] or '0') ~= summarized or meta[6] ~= held or meta[7] ~= weight
  or (meta[8] or '') ~= waiting then return {'changed'} end

if redis.call('HEXISTS', KEYS[1], 'saved') == 1 then redis.call('HSET', KEYS[1], 'saved', seq) end
redis.call('XTRIM', KEYS[2], 'MINID', decimal(tonumber(last) + 1) .. '-0')
redis.call('HSET', KEYS[1], 'summarized', last, 'summary', summary,
  'count', decimal(tonumber(meta[6]) - count), 'bytes', decimal(tonumber(meta[7]) - bytes))
return {'ok'}
