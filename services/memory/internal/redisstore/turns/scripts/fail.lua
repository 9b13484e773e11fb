-- Closes a turn without an answer. A closed turn does not change.
-- KEYS: meta, log, turn, jrnl of the running step.
local epoch, outcome, failure, state, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_messages, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local step, said, size = ARGV[8], ARGV[9], tonumber(ARGV[10]) -- the unfinished reply of the step (or empty)
local keep = tonumber(ARGV[11]) -- how many ms the journal stays (or 0)
local source = ARGV[12] -- the source of untrusted text that it had read (or empty)

local bar, current, seq, count, bytes, remembered = check_session('seq', 'count', 'bytes', 'untrusted')
if bar then return bar end
local turn = redis.call('HMGET', KEYS[3], 'outcome', 'number', 'sha' .. step)
if turn[1] and turn[1] ~= '' then return {'closed', redis.call('HGETALL', KEYS[3])} end
local refusal = check_epoch(epoch, current, turn)
if refusal then return refusal end

seq, count, bytes = tonumber(seq), tonumber(count) + 1, tonumber(bytes) + size
local now = decimal(now_ms())
-- If the step was committed meanwhile, its whole reply is stored already.
if said ~= '' and not turn[3] and count <= max_messages and bytes <= max_bytes then
  seq = seq + 1
  append(seq, said, turn[2], now)
  redis.call('HSET', KEYS[1], 'seq', decimal(seq), 'count', decimal(count), 'bytes', decimal(bytes))
end
redis.call('HSET', KEYS[3], 'outcome', outcome, 'failure', failure, 'seq', decimal(seq))
redis.call('HSET', KEYS[1], 'state', state, 'open', '', 'open_trace', '', 'active', now)
if source ~= '' then redis.call('HSET', KEYS[1], 'untrusted', gravest(remembered, source)) end
redis.call('PEXPIRE', KEYS[3], retention)
if keep > 0 then redis.call('PEXPIRE', KEYS[4], keep) else redis.call('DEL', KEYS[4]) end
return {'closed', redis.call('HGETALL', KEYS[3])}
