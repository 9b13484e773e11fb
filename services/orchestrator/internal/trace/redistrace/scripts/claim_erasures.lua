-- Hands out erasures that no caller has continued, each to one caller. KEYS: the list. ARGV: how many, and the ms
-- after which the next caller may continue. The score is negative, so that the oldest comes first.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found, taken = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES'), {}
for i = 1, #found, 2 do
  if -tonumber(found[i + 1]) <= now then
    redis.call('ZADD', KEYS[1], string.format('%.0f', -(now + tonumber(ARGV[2]))), found[i])
    taken[#taken + 1] = found[i]
  end
end
return taken
