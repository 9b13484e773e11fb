-- Makes the record of a trace with its first events, or takes over one that has not ended.
-- KEYS: record, events
-- ARGV: owner, record (protobuf), ttl of a running trace in ms, then sequence and event (protobuf) pairs
-- Reply: CLAIMED owner_epoch last | ENDED
local held = redis.call('HMGET', KEYS[1], 'epoch', 'last', 'ended')
if held[3] then return {'ENDED'} end

local epoch = string.format('%.0f', tonumber(held[1] or '0') + 1)
local last = tonumber(held[2] or '0')
for i = 4, #ARGV, 2 do
  local sequence = tonumber(ARGV[i])
  if sequence == last + 1 then
    redis.call('XADD', KEYS[2], ARGV[i] .. '-0', 'e', ARGV[i + 1])
    last = sequence
  end
end
last = string.format('%.0f', last)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch, 'last', last)
redis.call('HSETNX', KEYS[1], 'record', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'CLAIMED', epoch, last}
