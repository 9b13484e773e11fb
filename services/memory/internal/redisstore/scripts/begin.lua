-- Opens a turn, or takes it over when its lease has run out.
-- KEYS[4] is the turn ARGV[11], to be failed when its lease has run out too.
local id, trace, fingerprint, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease, window, generation = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local max_messages, max_bytes, retention = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local evicted, eviction, known_only = ARGV[11], ARGV[12], ARGV[13] == '1'

local now = now_ms()
local turn = redis.call('HMGET', KEYS[3], 'fingerprint', 'outcome', 'holder')
local meta = redis.call('HMGET', KEYS[1], 'open', 'open_trace', 'deadline', 'epoch', 'turns', 'seq', 'bytes')
local known, open = turn[1], meta[1] or ''
local left = tonumber(meta[3] or 0) - now

-- The history is that with which the turn began, also when it is taken over.
local function begun()
  local first = redis.call('HGET', KEYS[3], 'first')
  return {'begun', redis.call('HGETALL', KEYS[3]), redis.call('XREVRANGE', KEYS[2], first .. '-0', '-', 'COUNT', window)}
end

if known then
  if known ~= fingerprint then return {'key_reused'} end
  if turn[2] ~= '' then return {'closed', redis.call('HGETALL', KEYS[3])} end
  -- The holder asks again: its first answer was lost.
  if left > 0 and turn[3] == trace then return begun() end
  if left > 0 or known_only then return {'open', redis.call('HGETALL', KEYS[3]), left} end
elseif known_only then
  return {'not_found'}
elseif open ~= '' then
  if left > 0 then return {'session_busy', open, meta[2], left} end
  -- Its key must be in KEYS, so the caller has to come again with it.
  if evicted ~= open then return {'evict', open} end
end
local seq, bytes = tonumber(meta[6] or 0), tonumber(meta[7] or 0)
if not known and (seq + 1 > max_messages or bytes + #body > max_bytes) then
  return {'session_full', decimal(seq), decimal(bytes)}
end

local epoch = decimal(math.max(tonumber(meta[4] or 0) + 1, generation * 4294967296))
local deadline = decimal(now + lease)
if known then
  redis.call('HSET', KEYS[3], 'epoch', epoch, 'holder', trace)
  redis.call('HINCRBY', KEYS[3], 'attempt', 1)
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'deadline', deadline, 'active', decimal(now))
else
  local number = decimal(tonumber(meta[5] or 0) + 1)
  seq = seq + 1
  append(seq, body, number, now)
  if open ~= '' then
    redis.call('HSET', KEYS[4], 'outcome', 'failed', 'failure', eviction)
    redis.call('PEXPIRE', KEYS[4], retention)
  end
  redis.call('HSET', KEYS[3], 'trace', trace, 'holder', trace, 'fingerprint', fingerprint, 'number', number, 'outcome', '',
    'epoch', epoch, 'attempt', '1', 'first', decimal(seq), 'seq', decimal(seq), 'steps', '0')
  redis.call('HSETNX', KEYS[1], 'created', decimal(now))
  redis.call('HSET', KEYS[1], 'schema', '1', 'state', 'busy', 'epoch', epoch, 'deadline', deadline,
    'open', id, 'open_trace', trace, 'last_trace', trace, 'turns', number,
    'seq', decimal(seq), 'bytes', decimal(bytes + #body), 'active', decimal(now))
end
return begun()
