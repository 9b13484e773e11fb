-- Opens a turn, or takes it over.
-- KEYS: meta, log, turn, turns, out; and evicted: the turn ARGV[15], to be failed when its
-- lease has run out, and jrnl of the step that ran.
local id, trace, fingerprint, user, body, size = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local lease, window, least = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]) -- least epoch of the generation
local max_messages, max_bytes, retention = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local known_only, lost = ARGV[13] == '1', ARGV[14]
local evicted, eviction = ARGV[15], ARGV[16]
local window_bytes = tonumber(ARGV[17])
local step, said, said_size = ARGV[18], ARGV[19], tonumber(ARGV[20]) -- what the evicted turn had said so far

local bar = barred()
if bar then return bar end
local now = now_ms()
local turn = redis.call('HMGET', KEYS[3], 'fingerprint', 'outcome', 'holder', 'epoch')
local meta = redis.call('HMGET', KEYS[1], 'open', 'open_trace', 'deadline', 'epoch', 'turns', 'seq', 'count', 'bytes', 'user', 'state', 'created')
local known, open = turn[1], meta[1] or ''
local left = tonumber(meta[3] or 0) - now
local pending, created = redis.call('EXISTS', KEYS[5]), meta[11] or decimal(now)

-- The history is that with which the turn began, also when it is taken over.
local function begun()
  local first = redis.call('HGET', KEYS[3], 'first')
  local entries = read('XREVRANGE', KEYS[2], first .. '-0', '-', window, window_bytes)
  local summary = redis.call('HMGET', KEYS[1], 'summarized', 'summary')
  return {'begun', redis.call('HGETALL', KEYS[3]), pending, created, entries, summary[1] or '0', summary[2] or ''}
end

-- The first turn decides whose the session is.
if meta[9] and meta[9] ~= user and (meta[9] ~= '' or meta[5] ~= '0') then return {'no_session'} end
if known then
  if known ~= fingerprint then return {'key_reused'} end
  if turn[2] ~= '' then return {'closed', redis.call('HGETALL', KEYS[3]), pending} end
  local holds = left > 0 and turn[3] == trace
  -- An epoch of a generation before may be known to nobody, or to somebody else.
  local over = turn[4] == lost or tonumber(turn[4]) < least
  -- The holder asks again: its first answer was lost.
  if holds and (known_only or not over) then return begun() end
  if not holds and (known_only or left > 0) then
    return {'open', redis.call('HGETALL', KEYS[3]), pending, created, left}
  end
elseif known_only then
  return {'not_found'}
elseif meta[10] == 'closed' then
  return {'session_closed'}
elseif open ~= '' then
  if left > 0 then return {'session_busy', open, meta[2], left} end
  -- Its key must be in KEYS, so the caller has to come again with it.
  if evicted ~= open then return {'evict', open} end
end
local seq, count, bytes = tonumber(meta[6] or 0), tonumber(meta[7] or 0), tonumber(meta[8] or 0)
if not known and (count + 1 > max_messages or bytes + size > max_bytes) then
  return {'session_full', decimal(count), decimal(bytes)}
end

local epoch = decimal(math.max(tonumber(meta[4] or 0) + 1, least))
local deadline = decimal(now + lease)
if known then
  redis.call('HSET', KEYS[3], 'epoch', epoch, 'holder', trace)
  redis.call('HINCRBY', KEYS[3], 'attempt', 1)
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'deadline', deadline, 'active', decimal(now))
else
  local number = decimal(tonumber(meta[5] or 0) + 1)
  if open ~= '' then
    local left = redis.call('HMGET', KEYS[6], 'number', 'sha' .. step)
    -- A step that was committed meanwhile has said it in full.
    if said ~= '' and not left[2] and count + 2 <= max_messages and bytes + said_size + size <= max_bytes then
      seq, count, bytes = seq + 1, count + 1, bytes + said_size
      append(seq, said, left[1], now)
    end
    redis.call('HSET', KEYS[6], 'outcome', 'failed', 'failure', eviction, 'seq', decimal(seq))
    redis.call('PEXPIRE', KEYS[6], decimal(retention))
    redis.call('DEL', KEYS[7])
    redis.call('ZADD', KEYS[4], decimal(now), evicted)
  end
  seq = seq + 1
  append(seq, body, number, now)
  -- A turn that began two retentions ago was closed and forgotten long since.
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', decimal(now - 2 * retention))
  redis.call('ZADD', KEYS[4], decimal(now), id)
  redis.call('HSET', KEYS[3], 'trace', trace, 'holder', trace, 'fingerprint', fingerprint, 'number', number, 'outcome', '',
    'epoch', epoch, 'attempt', '1', 'first', decimal(seq), 'seq', decimal(seq), 'steps', '0')
  redis.call('HSETNX', KEYS[1], 'created', decimal(now))
  redis.call('HSET', KEYS[1], 'schema', '2', 'state', 'busy', 'user', user, 'epoch', epoch, 'deadline', deadline,
    'open', id, 'open_trace', trace, 'last_trace', trace, 'turns', number,
    'seq', decimal(seq), 'count', decimal(count + 1), 'bytes', decimal(bytes + size), 'active', decimal(now))
end
return begun()
