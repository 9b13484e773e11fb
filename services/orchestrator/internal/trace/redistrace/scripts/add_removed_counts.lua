-- Adds what was removed to the counts of a mark, once for each source. KEYS: the mark; and for traces of a
-- session, the list that has them. ARGV: the source, then kinds and counts.
local new
if KEYS[2] then
  new = redis.call('ZREM', KEYS[2], ARGV[1])
else
  new = redis.call('HSETNX', KEYS[1], 'of:' .. ARGV[1], '1')
end
if new == 0 then return 0 end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] ~= '0' then redis.call('HINCRBY', KEYS[1], 'n:' .. ARGV[i], ARGV[i + 1]) end
end
return 1
