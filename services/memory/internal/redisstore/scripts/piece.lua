-- Stores the next piece of a content. KEYS: meta, log, turn, blob, the piece; or, when the
-- content is not what it was said to be and is to be forgotten, the blob and all its pieces.
local epoch, offset, ends, hash, piece, forget = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'

local refusal = held(epoch)
if refusal then return refusal end
local blob = redis.call('HMGET', KEYS[4], 'stored', 'until')
if blob[1] ~= offset then return {'elsewhere', blob[1] or '0'} end

if forget then
  for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
  return {'ok'}
end
redis.call('SET', KEYS[5], piece, 'PXAT', blob[2])
redis.call('HSET', KEYS[4], 'stored', ends, 'hash', hash)
return {'ok'}
