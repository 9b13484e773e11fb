-- Removes a trace except for the mark that it is erased, and how much there was.
-- KEYS: record, events, child sessions, followers. ARGV: decisions, how long the mark is kept in ms. Reply: events, decisions
local held = redis.call('HMGET', KEYS[1], 'last', 'decisions')
local last, decisions = held[1] or '0', held[2] or ARGV[1]
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[1], 'erased', '1', 'last', last, 'decisions', decisions)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {last, decisions}
