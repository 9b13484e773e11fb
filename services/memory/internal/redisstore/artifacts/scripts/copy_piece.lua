-- Stores a piece of a content at the user, as long as there is room for the content.
-- KEYS: the blob, the piece, and erased of the user.
local piece, session = ARGV[1], ARGV[2]

if is_erased(KEYS[3], session) then return {'deleted'} end
local blob = redis.call('HMGET', KEYS[1], 'refs', 'until')
-- A content that a version has is complete, and its pieces must not expire.
if blob[2] and tonumber(blob[1]) == 0 then redis.call('SET', KEYS[2], piece, 'PXAT', blob[2]) end
return {'ok'}
