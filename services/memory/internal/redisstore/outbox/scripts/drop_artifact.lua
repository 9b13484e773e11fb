-- Removes versions of artifacts of a user, once for each id. KEYS: arts, decided and erased of the user; and
-- for each version its blob and its pieces. ARGV: the id; and for each version its field, its size and its
-- number of keys.
local id = ARGV[1]
local waiting = '9007199254740991' -- as in apply_commit.lua

if redis.call('ZSCORE', KEYS[2], id) or is_erased(KEYS[3], id) then return {'ok'} end

redis.call('ZADD', KEYS[2], waiting, id)
drop_versions(KEYS[1], KEYS[1], 4, 2)
return {'ok'}
