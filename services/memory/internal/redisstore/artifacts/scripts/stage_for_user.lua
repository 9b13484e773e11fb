-- Makes room at the user for a content that a session has. KEYS: arts and staged of the user, the blob there, and
-- erased of the user. Replies whether the user has all of it already.
local size, max_bytes, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local max_count, name, whole = tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1' -- whether the session has all of it
local session = ARGV[7]

if is_erased(KEYS[4], session) then return {'deleted'} end
if tonumber(redis.call('HGET', KEYS[3], 'refs') or 0) > 0 then return {'there'} end
if not whole then return {'missing'} end
return make_room(KEYS[1], KEYS[2], KEYS[3], name, size, max_count, max_bytes, keep)
