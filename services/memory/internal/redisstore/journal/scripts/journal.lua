-- Stores entries of a running step. KEYS: meta, log, turn, jrnl of the step.
local epoch, step, max_bytes, keep = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local first = 5 -- index of the fields and values, in turn up to the end

local refusal, turn = check_turn(epoch, 'sha' .. step, 'inherits')
if refusal then return refusal end
if turn[2] then return {'step_committed'} end
local bytes = tonumber(redis.call('HGET', KEYS[4], 'bytes') or 0)
local fresh, had = {}, bytes
for i = first, #ARGV, 2 do
  local stored = fresh[ARGV[i]] or redis.call('HGET', KEYS[4], ARGV[i])
  if not stored or ARGV[i] == '0:i' and stored ~= ARGV[i + 1] then -- the input of a step may change
    fresh[ARGV[i]] = ARGV[i + 1]
    bytes = bytes + #ARGV[i + 1]
  elseif stored ~= ARGV[i + 1] then
    return {'nondeterminism', ARGV[i], stored}
  end
end
if bytes > max_bytes then return {'journal_full', decimal(had)} end
if bytes == had then return {'ok'} end

for field, value in pairs(fresh) do redis.call('HSET', KEYS[4], field, value) end
redis.call('HSET', KEYS[4], 'bytes', decimal(bytes))
-- Notes that there was a journal, so that a turn is not continued without one that was lost.
if had == 0 then redis.call('HSET', KEYS[3], 'jrnl' .. step, '1') end
-- The journal of a step that continues with answers must not expire: the step must not run anew.
if not contains_step(turn[3], step) then redis.call('PEXPIRE', KEYS[4], keep) end
return {'ok'}
