-- Stores events of a trace, fenced by its owner epoch. A result ends the trace.
-- KEYS: record, events
-- ARGV: owner_epoch, result (protobuf) or '', how long the trace is kept after its end in ms, turn_epoch or 0 to
-- leave it, then pairs of sequence and event (protobuf)
-- Reply: OK | FENCED owner_epoch | NOT_FOUND | GAP last | ERASED
local held = redis.call('HMGET', KEYS[1], 'epoch', 'last', 'erased')
if held[3] then return {'ERASED'} end
if not held[1] then return {'NOT_FOUND'} end
if held[1] ~= ARGV[1] then return {'FENCED', held[1]} end
local last = tonumber(held[2])
if tonumber(ARGV[5]) > last + 1 then return {'GAP', held[2]} end

for i = 5, #ARGV, 2 do
  local sequence = tonumber(ARGV[i])
  if sequence == last + 1 then
    redis.call('XADD', KEYS[2], ARGV[i] .. '-0', 'e', ARGV[i + 1])
    last = sequence
  end
end
redis.call('HSET', KEYS[1], 'last', string.format('%.0f', last))
if ARGV[4] ~= '0' then redis.call('HSET', KEYS[1], 'turn_epoch', ARGV[4]) end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], 'ended', '1', 'result', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return {'OK'}
