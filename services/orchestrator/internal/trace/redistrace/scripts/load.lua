-- Reads the record of a trace, and for how long it has run under its timeout.
-- KEYS: record
-- Reply: ms since the timeout began, or 0, then the fields and values of the record
local held = redis.call('HGETALL', KEYS[1])
local now, since = redis.call('TIME'), nil
for i = 1, #held, 2 do
  if held[i] == 'since' then since = tonumber(held[i + 1]) end
end
local ran = since and now[1] * 1000 + math.floor(now[2] / 1000) - since or 0
table.insert(held, 1, string.format('%.0f', ran))
return held
