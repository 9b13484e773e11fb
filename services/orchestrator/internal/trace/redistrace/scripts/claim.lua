-- Makes the record of a trace with its first events, or takes over one that has not ended.
-- KEYS: record, events
-- ARGV: owner, record (protobuf), how long a running trace is kept in ms, user, fingerprint, turn_epoch, timeout
-- in ms or 0 to leave it, 1 for credentials, labels, parent trace; then pairs of sequence and event (protobuf)
-- Reply: CLAIMED owner_epoch last | ENDED | FENCED turn_epoch | ERASED
local held = redis.call('HMGET', KEYS[1], 'epoch', 'last', 'ended', 'turn_epoch', 'erased')
if held[5] then return {'ERASED'} end
if held[3] then return {'ENDED'} end
if tonumber(held[4] or '0') > tonumber(ARGV[6]) then return {'FENCED', held[4]} end

local epoch = string.format('%.0f', tonumber(held[1] or '0') + 1)
local last = tonumber(held[2] or '0')
for i = 11, #ARGV, 2 do
  local sequence = tonumber(ARGV[i])
  if sequence == last + 1 then
    redis.call('XADD', KEYS[2], ARGV[i] .. '-0', 'e', ARGV[i + 1])
    last = sequence
  end
end
last = string.format('%.0f', last)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch, 'last', last,
  'user', ARGV[4], 'fingerprint', ARGV[5], 'turn_epoch', ARGV[6], 'credentials', ARGV[8])
redis.call('HSETNX', KEYS[1], 'record', ARGV[2])
redis.call('HSETNX', KEYS[1], 'labels', ARGV[9])
redis.call('HSETNX', KEYS[1], 'parent', ARGV[10])
if ARGV[7] ~= '0' then
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'timeout', ARGV[7], 'since', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'CLAIMED', epoch, last}
