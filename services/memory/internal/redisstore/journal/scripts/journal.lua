-- Stores entries of a running step. KEYS: meta, log, turn, jrnl of the step.
local epoch, step, max_bytes, keep = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local first = 5 -- fields and values in turn go from here to the end

local refusal, turn = held(epoch, 'sha' .. step, 'inherits')
if refusal then return refusal end
if turn[2] then return {'step_committed'} end
local bytes = tonumber(redis.call('HGET', KEYS[4], 'bytes') or 0)
local fresh, had = {}, bytes
for i = first, #ARGV, 2 do
  local stored = fresh[ARGV[i]] or redis.call('HGET', KEYS[4], ARGV[i])
  if not stored or ARGV[i] == '0:i' and stored ~= ARGV[i + 1] then -- what the step is given it is given anew
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
-- It is known that there was a journal, so that nobody goes on without one that is lost.
if had == 0 then redis.call('HSET', KEYS[3], 'jrnl' .. step, '1') end
-- One that began with answers to calls that waited must not be done anew.
if turn[3] ~= step then redis.call('PEXPIRE', KEYS[4], keep) end
return {'ok'}
