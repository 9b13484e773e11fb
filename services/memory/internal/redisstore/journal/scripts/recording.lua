-- Returns entries of a finished step, sorted by number, as many as fit; none of a step that still runs.
-- KEYS: meta, log, turn, jrnl of the step.
local step, after, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local bar = check_session()
if bar then return bar end
local turn = redis.call('HMGET', KEYS[3], 'outcome', 'sha' .. step)
if not turn[1] then return {'not_found'} end
if turn[1] == '' and not turn[2] then return {'ok', {}} end
return {'ok', page(KEYS[4], after, max_bytes)}
