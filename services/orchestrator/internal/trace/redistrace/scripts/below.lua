-- Enters a session as one in which an agent of a trace works, and says whether that trace is erased:
-- whoever erases it sets its mark before it reads the list.
-- KEYS: record, sessions below. ARGV: session, for how long the list is kept in ms.
-- Reply: 1 when it is erased
if redis.call('HEXISTS', KEYS[1], 'erased') == 1 then return 1 end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 0
