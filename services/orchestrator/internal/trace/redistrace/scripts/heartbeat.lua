-- Renews the leases of traces, removes those that have ended, and takes over some whose lease has expired.
-- KEYS: open, stops
-- ARGV: the duration of a lease in ms, how many to take over at most, the id of the last stop that was read or
-- '' to read none, how many traces the caller owns; then these, and those that have ended
-- Reply: the traces that were taken over, and the stops since then
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The score is negative, so that the lease that expired first comes first in ZREVRANGE.
local score = string.format('%.0f', -(now + tonumber(ARGV[1])))
local mine = tonumber(ARGV[4])
for i = 5, 4 + mine do redis.call('ZADD', KEYS[1], score, ARGV[i]) end
for i = 5 + mine, #ARGV do
  redis.call('ZADD', KEYS[1], '+inf', ARGV[i])
  redis.call('ZREMRANGEBYRANK', KEYS[1], -1, -1) -- removes this one
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
