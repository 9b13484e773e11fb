-- Enters a child session in which an agent of a trace works, and replies whether that trace is erased. An erasure
-- sets its mark before it reads the list.
-- KEYS: record, child sessions. ARGV: session, how long the list is kept in ms.
-- Reply: 1 when the trace is erased
if redis.call('HEXISTS', KEYS[1], 'erased') == 1 then return 1 end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 0
