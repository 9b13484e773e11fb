-- Makes a change of state that a commit enqueued, once. KEYS: state, decided and erased of the scope.
-- With only an id and a time in ARGV, the session has forgotten the change, and the scope may forget it after
-- that time.
local id, keep = ARGV[1], tonumber(ARGV[2])
local waiting = '9007199254740991'

local now = now_ms()
if #ARGV == 2 then
  redis.call('ZADD', KEYS[2], 'XX', decimal(now), id)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', decimal(now - keep))
  return {'ok'}
end
if redis.call('ZSCORE', KEYS[2], id) or is_erased(KEYS[3], id) then return {'ok'} end
local lock, key = find_lock(KEYS[1], 3, #ARGV, id .. ' ')
if lock then return {'locked', lock, key, decimal(now - tonumber(string.match(lock, '%d+$')))} end
local bytes, count = size_after(KEYS[1], 3, #ARGV)

change_shared(KEYS[1], 3, #ARGV, bytes, count)
redis.call('ZADD', KEYS[2], waiting, id)
return {'ok'}
