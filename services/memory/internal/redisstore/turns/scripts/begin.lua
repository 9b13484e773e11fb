-- Opens a turn, or takes it over.
-- KEYS: meta, log, turn, turns, out. Then the turn that must make room, ARGV[15], and jrnl of its step: the
-- open turn, which fails when its lease has expired, and jrnl of further steps that it continues; or the turn
-- whose calls wait, as <turn>:<step>,<step>, and jrnl of each of these steps, in the old turn and in the new one. A
-- turn that resumes a failed one, or begins with a copy, has the keys of origin.lua instead. Then, from ARGV[26] on, the keys of attach.lua, for the files of the message. ARGV from
-- 29 on is for attach.lua and origin.lua.
local id, trace, fingerprint, user, body, size = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local lease, window, least = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]) -- least: the least epoch of the generation
local max_messages, max_bytes, retention = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local known_only, lost = ARGV[13] == '1', ARGV[14]
local before, eviction = ARGV[15], ARGV[16]
local window_bytes = tonumber(ARGV[17])
-- The unfinished reply of the open turn, whose journals are those of the step and of further ones.
local step, said, said_size = ARGV[18], ARGV[19], tonumber(ARGV[20])
local continues, answers = ARGV[21], ARGV[22] -- the turn whose calls wait (or empty)
local resumes, origin_at = ARGV[23], tonumber(ARGV[24]) -- the failed turn (or empty), and where ARGV of origin.lua begins (or 0)
local reserve = tonumber(ARGV[25]) -- how many ms an open turn with an expired lease is left to the caller that takes it over
local files_at, files, files_rejected = tonumber(ARGV[26]), {}, nil
local source = ARGV[27] -- the source of untrusted text that the turn, or the open one, brings (or empty)
local evicted = ARGV[28] -- the steps of the open turn whose journals are in KEYS, separated by commas
local new = origin_at > 0 and read_origin(origin_at) or {count = 0, bytes = 0}
local failed, refusal
local added = body == '' and 0 or 1 -- a turn that continues another has no message

local bar, last_epoch, open, open_trace, deadline, turns, seq, count, bytes, owner, state, created, summarized, summary, waiting, arts, art_bytes, remembered, agents, round_bytes, settings =
  check_session('open', 'open_trace', 'deadline', 'turns', 'seq', 'count', 'bytes', 'user', 'state', 'created', 'summarized', 'summary', 'waiting', 'arts', 'art_bytes', 'untrusted', 'agents', 'round_bytes', 'settings')
if bar then return bar end
local turn = redis.call('HMGET', KEYS[3], 'fingerprint', 'outcome', 'holder', 'epoch', 'first')
local pending, now = redis.call('EXISTS', KEYS[5]), now_ms()
local known, left, at = turn[1], tonumber(deadline or 0) - now, decimal(now)
created, open, waiting = created or at, open or '', waiting or ''
local room = open ~= '' and open or waiting

-- A takeover returns the same history with which the turn began.
local function begun(fields, first)
  local entries = read('XREVRANGE', KEYS[2], first .. '-0', '-', window, window_bytes)
  return {'begun', fields, pending, created, entries, summarized or '0', summary or '', agents or '', settings or '',
    decimal(tonumber(seq or 0) - tonumber(count or 0))}
end

-- The first turn decides to which user the session belongs.
if owner and owner ~= user and (owner ~= '' or turns ~= '0') then return {'no_session'} end
if known then
  if known ~= fingerprint then return {'key_reused'} end
  if turn[2] ~= '' then return {'closed', redis.call('HGETALL', KEYS[3]), pending} end
  local holds = left > 0 and turn[3] == trace
  -- An epoch of an earlier generation may be unknown, or belong to another caller.
  local over = turn[4] == lost or tonumber(turn[4]) < least
  -- The holder asks again, because the first reply was lost.
  if holds and (known_only or not over) then return begun(redis.call('HGETALL', KEYS[3]), turn[5]) end
  if not holds and (known_only or left > 0) then
    return {'open', redis.call('HGETALL', KEYS[3]), pending, created, left}
  end
elseif known_only then
  return {'not_found'}
elseif state == 'closed' then
  return {'session_closed'}
elseif open ~= '' and left + reserve > 0 then
  return {'session_busy', open, open_trace, left}
elseif continues ~= '' and string.match(waiting, '^[^:]*') ~= continues then
  return {'not_waiting'}
elseif new.copy and turns then
  return {'session_known'}
elseif resumes ~= '' then
  failed, refusal = resumable(new, turns or '0')
  if refusal then return refusal end
  local again = table.concat(failed.again, ',')
  if again ~= before then return {'journals', again} end
  for i = 1, #failed.again do
    if redis.call('EXISTS', KEYS[5 + 2 * i]) == 0 then return {'failed_long_ago'} end
  end
elseif room ~= '' and before ~= room then
  -- Its keys must be in KEYS, so the caller must run the script again with them.
  return {'make_room', room}
end
seq, count, bytes = tonumber(seq or 0), tonumber(count or 0), tonumber(bytes or 0)
if not known and added > 0 and (count + added + new.count > max_messages or bytes + tonumber(round_bytes or 0) + size + new.bytes + (new.round_bytes or 0) > max_bytes) then
  return {'session_full', decimal(count), decimal(bytes)}
end
if not known and ARGV[29] and origin_at ~= 29 then
  files, files_rejected = check_files(files_at, 29, tonumber(arts or 0), tonumber(art_bytes or 0), now)
  if files_rejected then return files_rejected end
end

local epoch = decimal(math.max(tonumber(last_epoch or 0) + 1, least))
deadline = decimal(now + lease)
if known then
  redis.call('HSET', KEYS[3], 'epoch', epoch, 'holder', trace)
  redis.call('HINCRBY', KEYS[3], 'attempt', 1)
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'deadline', deadline, 'active', at)
  return begun(redis.call('HGETALL', KEYS[3]), turn[5])
end

local first, attempt, steps, carried = nil, '1', '0', {}
source = gravest(remembered, source)
local behind = source -- the source of untrusted text before the turn
if open ~= '' then
  local given_up = redis.call('HMGET', KEYS[6], 'number', 'sha' .. step)
  -- If the step was committed meanwhile, its whole reply is stored already.
  if said ~= '' and not given_up[2] and count + 1 + added <= max_messages and bytes + said_size + size <= max_bytes then
    seq, count, bytes = seq + 1, count + 1, bytes + said_size
    append(seq, said, given_up[1], at)
  end
  redis.call('HSET', KEYS[6], 'outcome', 'failed', 'failure', eviction, 'seq', decimal(seq))
  redis.call('PEXPIRE', KEYS[6], decimal(retention))
  end_journals(KEYS[6], 7, evicted, 0)
  redis.call('ZADD', KEYS[4], at, open)
elseif continues ~= '' then
  local from, again, stored = {}, steps_of(string.match(waiting, ':(.*)$')), redis.call('HGETALL', KEYS[6])
  for i = 1, #stored, 2 do from[stored[i]] = stored[i + 1] end
  if not from.steps then return {'forgotten'} end
  -- What was done must not be done again, so the turn is not continued when a journal was lost.
  local moved = {}
  for i, n in ipairs(again) do
    moved[n] = from.kept and from.kept == '1' or not from.kept and from['jrnl' .. n] ~= nil
    if moved[n] and redis.call('EXISTS', KEYS[5 + 2 * i]) == 0 then return {'forgotten'} end
  end
  carried = {'continues', continues, 'answers', answers, 'inherits', table.concat(again, ',')}
  local last = tonumber(again[1]) - 1
  for n = 1, tonumber(from.steps) do
    if moved[decimal(n)] == nil and from['result' .. n] then
      last = math.max(last, n)
      for _, value in ipairs({'sha' .. n, 'inherited', 'result' .. n, from['result' .. n]}) do carried[#carried + 1] = value end
    end
  end
  first, attempt, steps = from.first, decimal(tonumber(from.attempt) + 1), decimal(last)
  behind = from.untrusted or ''
  for i, n in ipairs(again) do
    if moved[n] then
      redis.call('RENAME', KEYS[5 + 2 * i], KEYS[6 + 2 * i])
      redis.call('PERSIST', KEYS[6 + 2 * i]) -- it does not expire while the turn is open
      carried[#carried + 1], carried[#carried + 2] = 'jrnl' .. n, '1'
    end
  end
  redis.call('HDEL', KEYS[1], 'waiting')
elseif resumes ~= '' then
  carried = {'origin', failed.origin or resumes}
  first, attempt = failed.first, decimal(tonumber(failed.attempt) + 1)
  behind = failed.untrusted or ''
  take_over(failed, carried, new.keep)
elseif waiting ~= '' then
  for i in ipairs(steps_of(string.match(waiting, ':(.*)$'))) do redis.call('DEL', KEYS[5 + 2 * i]) end
  redis.call('HDEL', KEYS[1], 'waiting')
end
local number = tonumber(turns or 0) + 1
local held = count + (new.before or 0) -- before the turn
if origin_at > 0 then
  steps = decimal(new.step)
  inherit(new, carried)
  if new.copy then seq = copy_before(new, seq) end
end
if added > 0 then
  seq = seq + 1
  append(seq, body, decimal(number), at)
end
first = first or decimal(seq)
if behind ~= '' then carried[#carried + 1], carried[#carried + 2] = 'untrusted', behind end
if source ~= '' then redis.call('HSET', KEYS[1], 'untrusted', source) end
if new.copy then
  seq = copy_behind(new, seq, decimal(number))
  copy_rounds(new, id)
  agents = new.agents
end
attach(files, files_at, at)
redis.call('ZADD', KEYS[4], at, id)
-- A turn that began two retentions ago was closed and has expired. It is enough to forget the ids of such turns now
-- and then.
if number % 16 == 0 then redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', decimal(now - 2 * retention)) end
local fields = {'trace', trace, 'holder', trace, 'fingerprint', fingerprint, 'number', decimal(number), 'outcome', '',
  'epoch', epoch, 'attempt', attempt, 'held', decimal(held), 'first', first, 'seq', decimal(seq), 'steps', steps, unpack(carried)}
redis.call('HSET', KEYS[3], unpack(fields))
redis.call('HSET', KEYS[1], 'schema', schema, 'state', 'busy', 'user', user, 'epoch', epoch, 'deadline', deadline,
  'open', id, 'open_trace', trace, 'last_trace', trace, 'turns', decimal(number), 'created', created,
  'seq', decimal(seq), 'count', decimal(count + added + new.count), 'bytes', decimal(bytes + size + new.bytes), 'active', at)
if new.summary then summarized, summary = '1', new.summary end
count = count + added + new.count
return begun(fields, first)
