-- Changes a session outside of its turns, or creates it. KEYS: meta.
local if_revision, create, user = ARGV[1], ARGV[2] == '1', ARGV[3]
local max_labels, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
-- The new settings (empty keeps them), whether they have no_auto_save, and whether the verb saves.
local settings, no_auto_save, saves = ARGV[7], ARGV[8] == '1', ARGV[9] == '1'
local labels = 9 + 2 * tonumber(ARGV[6]) + 1 -- before them: pairs of a state and the state to which the verb leads
local moves = {}
for i = 10, labels - 1, 2 do moves[ARGV[i]] = ARGV[i + 1] end

local bar = check_session()
if bar then return bar end
local had, stored, count, bytes = {}, redis.call('HGETALL', KEYS[1]), 0, 0
for i = 1, #stored, 2 do
  had[stored[i]] = stored[i + 1]
  if string.sub(stored[i], 1, 3) == 'md:' then
    count, bytes = count + 1, bytes + #stored[i] - 3 + #stored[i + 1]
  end
end
if not had.schema and not create then return {'no_session'} end
if had.schema and user ~= '' and had.user ~= user then return {'no_session'} end
local revision, state = had.rev or '0', had.state or 'created'
if if_revision ~= '0' and if_revision ~= revision then return {'revision_mismatch', revision} end
local to = moves[state]
if not to then return {'session_busy', had.open, had.open_trace} end
local changes = settings ~= '' and settings ~= (had.settings or '-')
for i = labels, #ARGV, 2 do
  local old = had['md:' .. ARGV[i]] or ''
  if old ~= ARGV[i + 1] then
    changes = true
    if old ~= '' then count, bytes = count - 1, bytes - #ARGV[i] - #old end
    if ARGV[i + 1] ~= '' then count, bytes = count + 1, bytes + #ARGV[i] + #ARGV[i + 1] end
  end
end
if changes and (count > max_labels or bytes > max_bytes) then return {'labels_full', decimal(count), decimal(bytes)} end

local now = decimal(now_ms())
if not had.schema then
  redis.call('HSET', KEYS[1], 'schema', schema, 'user', user, 'created', now, 'active', now, 'epoch', '0',
    'turns', '0', 'seq', '0', 'count', '0', 'bytes', '0', 'open', '', 'state', to)
elseif to ~= state then
  redis.call('HSET', KEYS[1], 'state', to, 'active', now)
end
for i = labels, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], 'md:' .. ARGV[i])
  else
    redis.call('HSET', KEYS[1], 'md:' .. ARGV[i], ARGV[i + 1])
  end
end
-- Only a session with no_auto_save has the field saved: the sequence of its last saved message.
if settings ~= '' then redis.call('HSET', KEYS[1], 'settings', settings) end
if settings ~= '' and not no_auto_save then
  redis.call('HDEL', KEYS[1], 'saved')
elseif had.saved and saves or settings ~= '' and not had.saved then
  redis.call('HSET', KEYS[1], 'saved', had.seq or '0')
end
if changes then
  redis.call('HSET', KEYS[1], 'rev', decimal(tonumber(revision) + 1), 'active', now)
end
return {'ok', redis.call('HGETALL', KEYS[1])}
