-- Closes a turn without an answer. A closed turn does not change.
-- KEYS: meta, log, turn, jrnl of each step that has one to keep or to delete.
local epoch, outcome, failure, state, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_messages, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local step, said, size = ARGV[8], ARGV[9], tonumber(ARGV[10]) -- the unfinished reply of the step (or empty)
local keep = tonumber(ARGV[11]) -- how many ms the journals stay (or 0)
local source = ARGV[12] -- the source of untrusted text that it had read (or empty)
local steps = ARGV[13] -- the steps whose journals are in KEYS, separated by commas
local waits = ARGV[14] -- <turn>:<step>,<step> when calls of these steps wait (or empty)
local first = 15 -- index of the steps and results that no commit has stored, in turn up to the end

local bar, current, seq, count, bytes, remembered = check_session('seq', 'count', 'bytes', 'untrusted')
if bar then return bar end
local turn = redis.call('HMGET', KEYS[3], 'outcome', 'number', 'sha' .. step, 'steps')
if turn[1] and turn[1] ~= '' then return {'closed', redis.call('HGETALL', KEYS[3])} end
local refusal = check_epoch(epoch, current, turn)
if refusal then return refusal end
for i = first, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[3], 'sha' .. ARGV[i]) == 1 then return {'step_committed', ARGV[i]} end
end

seq, count, bytes = tonumber(seq), tonumber(count) + 1, tonumber(bytes) + size
local now = decimal(now_ms())
-- If the step was committed meanwhile, its whole reply is stored already.
if said ~= '' and not turn[3] and count <= max_messages and bytes <= max_bytes then
  seq = seq + 1
  append(seq, said, turn[2], now)
  redis.call('HSET', KEYS[1], 'seq', decimal(seq), 'count', decimal(count), 'bytes', decimal(bytes))
end
end_journals(KEYS[3], 4, steps, keep)
redis.call('HSET', KEYS[3], 'outcome', outcome, 'seq', decimal(seq))
if failure ~= '' then redis.call('HSET', KEYS[3], 'failure', failure) end
local last = tonumber(turn[4])
for i = first, #ARGV, 2 do
  last = math.max(last, tonumber(ARGV[i]))
  redis.call('HSET', KEYS[3], 'sha' .. ARGV[i], 'uncommitted', 'result' .. ARGV[i], ARGV[i + 1], 'steps', decimal(last))
end
redis.call('HSET', KEYS[1], 'state', state, 'open', '', 'open_trace', '', 'active', now)
if waits ~= '' then redis.call('HSET', KEYS[1], 'waiting', waits) end
if source ~= '' then redis.call('HSET', KEYS[1], 'untrusted', gravest(remembered, source)) end
redis.call('PEXPIRE', KEYS[3], retention)
return {'closed', redis.call('HGETALL', KEYS[3])}
