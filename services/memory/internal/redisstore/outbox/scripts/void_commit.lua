-- Decides about a commit that has locked keys. If it was made and its change is not applied yet, returns the change
-- and the user of the session. Otherwise makes sure that it cannot be made any more. KEYS: meta, log, turn, out.
local id, step, nonce = ARGV[1], ARGV[2], ARGV[3]

local change = redis.call('HGET', KEYS[4], id)
if change then return {'committed', change, redis.call('HGET', KEYS[1], 'user') or ''} end
local turn = redis.call('HMGET', KEYS[3], 'outcome', 'sha' .. step, 'void' .. step)
if turn[1] == '' and not turn[2] and not string.find(turn[3] or '', nonce, 1, true) then
  redis.call('HSET', KEYS[3], 'void' .. step, (turn[3] or '') .. nonce .. ' ')
end
return {'voided'}
