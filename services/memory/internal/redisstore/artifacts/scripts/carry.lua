-- Stores a piece of a content among those of a user, for as long as there is room for it.
-- KEYS: the blob, the piece, and erased of the user.
local piece, session = ARGV[1], ARGV[2]

if struck(KEYS[3], session) then return {'deleted'} end
local blob = redis.call('HMGET', KEYS[1], 'refs', 'until')
-- Where a version has the content, all its pieces are there, and must stay.
if blob[2] and tonumber(blob[1]) == 0 then redis.call('SET', KEYS[2], piece, 'PXAT', blob[2]) end
return {'ok'}
