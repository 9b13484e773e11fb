-- Changes state that several sessions share. KEYS: state, reqs and erased of the scope; and decided, when the
-- change is in an outbox. Then it is made or rejected only once.
local id, if_revision, left = ARGV[1], ARGV[2], ARGV[3]
local waiting = '9007199254740991' -- as in apply_commit.lua

if is_erased(KEYS[3], id) then return {'deleted'} end
local decided = KEYS[4] and redis.call('ZSCORE', KEYS[4], left)
local lock, key = find_lock(KEYS[1], 7, #ARGV, '<')
if lock and not decided then return {'locked', lock, key, decimal(now_ms() - tonumber(string.match(lock, '%d+$')))} end
local answer = request(KEYS[1], KEYS[2], id, if_revision, 4, change_shared, decided)
if KEYS[4] and not decided then redis.call('ZADD', KEYS[4], waiting, left) end
return answer
