-- Makes the messages of a step visible and stores its result; an outcome closes the turn.
local epoch, base, step, sha, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome, state, retention = ARGV[6], ARGV[7], ARGV[8]
local max_messages, max_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])
local first = 11 -- the bodies of the messages go from here to the end

local turn = redis.call('HMGET', KEYS[3], 'epoch', 'outcome', 'number', 'steps', 'sha' .. step)
if not turn[1] then return {'not_found'} end
if turn[5] == sha and turn[1] == epoch then return {'ok'} end
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'bytes')
if meta[1] ~= epoch then return {'fenced', meta[1]} end
if turn[2] ~= '' then return {'turn_not_open', turn[2]} end
if turn[5] then return {'step_committed'} end
if meta[2] ~= base then return {'base_mismatch', meta[2]} end
local seq, bytes = tonumber(meta[2]), tonumber(meta[3])
local size = 0
for i = first, #ARGV do size = size + #ARGV[i] end
if seq + #ARGV - first + 1 > max_messages or bytes + size > max_bytes then
  return {'session_full', meta[2], meta[3]}
end

local now = now_ms()
for i = first, #ARGV do
  seq = seq + 1
  append(seq, ARGV[i], turn[3], now)
end
local steps = decimal(math.max(tonumber(turn[4]), tonumber(step)))
redis.call('HSET', KEYS[3], 'sha' .. step, sha, 'result' .. step, result,
  'steps', steps, 'seq', decimal(seq), 'outcome', outcome)
redis.call('HSET', KEYS[1], 'seq', decimal(seq), 'bytes', decimal(bytes + size), 'active', decimal(now))
if outcome ~= '' then
  redis.call('HSET', KEYS[1], 'state', state, 'open', '', 'open_trace', '')
  redis.call('PEXPIRE', KEYS[3], retention)
end
return {'ok'}
