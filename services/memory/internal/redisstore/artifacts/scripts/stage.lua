-- Returns how much of a content is stored, and makes room for a new one. KEYS: meta, log, turn, blob, staged.
local epoch, size, max_bytes, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local max_count, name = tonumber(ARGV[5]), ARGV[6] -- the name of the content: <sha>-<size>

local refusal = check_turn(epoch)
if refusal then return refusal end
local blob = redis.call('HMGET', KEYS[4], 'stored', 'hash')
if blob[1] and tonumber(blob[1]) == size then return {'ok', blob[1], blob[2]} end
return make_room(KEYS[1], KEYS[5], KEYS[4], name, size, max_count, max_bytes, keep)
