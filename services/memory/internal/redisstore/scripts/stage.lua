-- Says how much of a content is stored, and makes room for one that is not known.
-- KEYS: meta, log, turn, blob.
local epoch, size, max_bytes, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local refusal = held(epoch)
if refusal then return refusal end
local blob = redis.call('HMGET', KEYS[4], 'stored', 'hash')
if blob[1] and tonumber(blob[1]) == size then return {'ok', blob[1], blob[2]} end
local meta = redis.call('HMGET', KEYS[1], 'arts', 'art_bytes')
if tonumber(meta[2] or 0) + size > max_bytes then return {'artifacts_full', meta[1] or '0', meta[2] or '0'} end
if blob[1] then return {'ok', blob[1], blob[2]} end

-- Its pieces are forgotten with it, whenever they came: all at one time.
local ends = decimal(now_ms() + keep)
redis.call('HSET', KEYS[4], 'stored', '0', 'refs', '0', 'hash', '', 'until', ends)
redis.call('PEXPIREAT', KEYS[4], ends)
return {'ok', '0', ''}
