-- Vouches for traces, forgets those that have ended, and takes some for which nobody vouches.
-- KEYS: roll, stops
-- ARGV: for how long in ms, how many to take at most, id of the last stop that was heard or
-- '' to hear none, how many traces are the caller's; then these, and those that have ended
-- Reply: traces that were taken, and the stops since then
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The score is below zero, so that the one that waits longest comes first in ZREVRANGE.
local score = string.format('%.0f', -(now + tonumber(ARGV[1])))
local mine = tonumber(ARGV[4])
for i = 5, 4 + mine do redis.call('ZADD', KEYS[1], score, ARGV[i]) end
for i = 5 + mine, #ARGV do
  redis.call('ZADD', KEYS[1], '+inf', ARGV[i])
  redis.call('ZREMRANGEBYRANK', KEYS[1], -1, -1) -- which is this one
end

local taken, most = {}, tonumber(ARGV[2])
if most > 0 then
  local oldest = redis.call('ZREVRANGE', KEYS[1], 0, most - 1, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    if -tonumber(oldest[i + 1]) <= now then
      redis.call('ZADD', KEYS[1], score, oldest[i])
      taken[#taken + 1] = oldest[i]
    end
  end
end
return {taken, ARGV[3] ~= '' and redis.call('XRANGE', KEYS[2], '(' .. ARGV[3], '+') or {}}
