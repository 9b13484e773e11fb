-- Makes the messages of a step visible and stores its result. An outcome closes the turn.
-- KEYS: meta, log, turn, jrnl of the step, state, out, rounds of the agent.
local epoch, base, step, sha, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome, state, retention = ARGV[6], ARGV[7], ARGV[8]
local max_messages, max_bytes, max_keys, max_state = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
-- Changes of shared state for the outbox, and their id.
local outer, outer_id, needs_user = ARGV[13], ARGV[14], ARGV[15] == '1'
local size = tonumber(ARGV[16]) -- of the messages
local waits = ARGV[17] -- <turn>:<step> when calls of the step wait (or empty)
-- How long the journal is kept, and what the step read.
local keep = tonumber(ARGV[18]) -- how many ms the journal stays after the commit (or 0)
local source = ARGV[19] -- the source of untrusted text that the step has read (or empty)
-- The rounds of the step (or empty), the fields of the journal that they name, and the name of the agent.
local rounds, named, agent = ARGV[20], ARGV[21], ARGV[22]
local nonce = ARGV[23] -- of the locks that the commit has on keys of shared state (or empty)
local outer_refusal = {unpack(ARGV, 24, 27)} -- why the shared state cannot be changed (the first is empty if it can)
local changes = 30 -- index of the changes of the session's state; ARGV[28] is where they end
local last_change, last_entry = tonumber(ARGV[28]), tonumber(ARGV[29]) -- the entries of the journal are between the two
local first = last_entry + 1 -- index of the bodies of the messages, up to the end

local bar, current, seq, count, bytes, user, remembered, round_bytes, agents =
  check_session('seq', 'count', 'bytes', 'user', 'untrusted', 'round_bytes', 'agents')
if bar then return bar end
local turn = redis.call('HMGET', KEYS[3], 'outcome', 'number', 'steps', 'epoch', 'sha' .. step, 'inherits', 'void' .. step)
if turn[5] == sha and turn[4] == epoch then return {'ok', 'repeated'} end
local refusal = check_epoch(epoch, current, turn)
if refusal then return refusal end
if turn[5] then return {'step_committed'} end
local awaited = first_awaited(KEYS[3], turn[6], step)
if awaited then return {'continued', awaited} end
if waits ~= '' and tonumber(step) <= tonumber(turn[3]) then return {'not_last'} end
if seq ~= base then return {'base_mismatch', seq} end
seq, count, bytes, round_bytes = tonumber(seq), tonumber(count), tonumber(bytes), tonumber(round_bytes or 0)
local added = #ARGV - first + 1
local kept, kept_bytes = {}, #rounds
for field in string.gmatch(named, '%S+') do
  local entry = redis.call('HSTRLEN', KEYS[4], field)
  if entry == 0 then return {'no_entry', field} end
  kept[field], kept_bytes = true, kept_bytes + entry
end
if (added > 0 or rounds ~= '') and (count + added > max_messages or bytes + round_bytes + size + kept_bytes > max_bytes) then
  return {'session_full', decimal(count), decimal(bytes)}
end
if needs_user and user == '' then return {'no_user'} end
if outer_refusal[1] ~= '' then return outer_refusal end
local state_bytes, state_keys, fits
if last_change > changes then
  state_bytes, state_keys, fits = size_after(KEYS[5], changes, last_change, max_state, max_keys)
  if not fits then return {'state_full', decimal(state_keys), decimal(state_bytes), 'session'} end
end
if nonce ~= '' then
  if string.find(turn[7] or '', nonce, 1, true) then return {'voided'} end
  -- Changes with locks come first in the outbox, so that no change with locks has to wait for another.
  if redis.call('EXISTS', KEYS[6]) == 1 then return {'pending'} end
end

local now = decimal(now_ms())
for i = first, #ARGV do
  seq = seq + 1
  append(seq, ARGV[i], turn[2], now)
end
if state_bytes then change(KEYS[5], changes, last_change, state_bytes, state_keys) end
if outer ~= '' then redis.call('HSET', KEYS[6], outer_id, outer) end
if turn[7] then redis.call('HDEL', KEYS[3], 'void' .. step) end
local steps = decimal(math.max(tonumber(turn[3]), tonumber(step)))
redis.call('HSET', KEYS[3], 'sha' .. step, sha, 'result' .. step, result,
  'steps', steps, 'seq', decimal(seq), 'outcome', outcome)
local meta = {'seq', decimal(seq), 'count', decimal(count + added), 'bytes', decimal(bytes + size), 'active', now}
if rounds ~= '' then
  -- The position in the history: the message before the rounds, and a number that only grows.
  local id = base .. '-' .. decimal(redis.call('HINCRBY', KEYS[1], 'rounds', 1))
  redis.call('XADD', KEYS[7], id, 'm', table.concat({turn[2], step, decimal(kept_bytes), string.match(KEYS[3], ':turn:(.*)$'), rounds}, ' '))
  meta = {'round_bytes', decimal(round_bytes + kept_bytes), unpack(meta)}
  if not string.find(' ' .. (agents or '') .. ' ', ' ' .. agent .. ' ', 1, true) then
    meta = {'agents', agents and agents ~= '' and agents .. ' ' .. agent or agent, unpack(meta)}
  end
end
if source ~= '' then meta = {'untrusted', gravest(remembered, source), unpack(meta)} end
if outcome ~= '' then
  meta = {'state', state, 'open', '', 'open_trace', '', unpack(meta)}
  redis.call('PEXPIRE', KEYS[3], retention)
end
redis.call('HSET', KEYS[1], unpack(meta))
for i = last_change + 1, last_entry, 2 do redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1]) end
if next(kept) then -- the entries that the rounds name stay as long as the session
  redis.call('PERSIST', KEYS[4])
  for _, field in ipairs(keep > 0 and {} or redis.call('HKEYS', KEYS[4])) do
    if not kept[field] then redis.call('HDEL', KEYS[4], field) end
  end
elseif waits == '' and keep > 0 then
  redis.call('PEXPIRE', KEYS[4], keep)
elseif waits == '' then
  redis.call('DEL', KEYS[4])
else
  redis.call('HSET', KEYS[1], 'waiting', waits)
  -- Notes whether there was a journal, so that a lost journal is not mistaken for none.
  redis.call('HSET', KEYS[3], 'kept', redis.call('PEXPIRE', KEYS[4], retention))
end
return {'ok'}
