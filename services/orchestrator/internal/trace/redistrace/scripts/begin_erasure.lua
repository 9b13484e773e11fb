-- Marks a session or a user as being erased, unless it is marked. KEYS: the mark. ARGV: by whom, how long the
-- mark is kept in ms, 1 to replace the mark of an erasure that has ended: what was erased may exist again.
-- Reply: fields and values of the mark
if ARGV[3] == '1' and redis.call('HEXISTS', KEYS[1], 'ended') == 1 then redis.call('UNLINK', KEYS[1]) end
if redis.call('EXISTS', KEYS[1]) == 0 then
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'by', ARGV[1], 'began', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('HGETALL', KEYS[1])
