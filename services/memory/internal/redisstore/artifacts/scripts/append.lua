-- Stores the next piece of a content. KEYS: meta, log, turn, staged, blob, the piece. When the content does not
-- have its digest and must be deleted, the KEYS end with the blob and all its pieces instead.
local epoch, offset, ends, hash, piece, forget = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'
local name = ARGV[7] -- of the content

local refusal = check_turn(epoch)
if refusal then return refusal end
local blob = redis.call('HMGET', KEYS[5], 'stored', 'until')
if blob[1] ~= offset then return {'elsewhere', blob[1] or '0'} end

if forget then
  for i = 5, #KEYS do redis.call('UNLINK', KEYS[i]) end
  redis.call('ZREM', KEYS[4], name)
  return {'ok'}
end
redis.call('SET', KEYS[6], piece, 'PXAT', blob[2])
redis.call('HSET', KEYS[5], 'stored', ends, 'hash', hash)
return {'ok'}
