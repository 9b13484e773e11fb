-- Locks the keys that a commit changes in a scope that sessions share, if all have their expected revision. A lock
-- is '<change> <nonce> <time>'. KEYS: state and erased of the scope. ARGV: the id of the change, the nonce, the
-- limits of the scope, and the index of the last expected revision; then keys with their revisions, and the changes.
local id, nonce, max_keys, max_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local last_expected = tonumber(ARGV[5])
local first = last_expected + 1
local own = id .. ' ' .. nonce .. ' '

if is_erased(KEYS[2], id) then return {'deleted'} end
local now = now_ms()
local lock, key = find_lock(KEYS[1], first, #ARGV, own)
if lock then return {'locked', lock, key, decimal(now - tonumber(string.match(lock, '%d+$')))} end
local changed = {}
for i = 6, last_expected, 2 do
  if (redis.call('HGET', KEYS[1], 'r:' .. ARGV[i]) or '0') ~= ARGV[i + 1] then table.insert(changed, ARGV[i]) end
end
if #changed > 0 then return {'keys_changed', table.concat(changed, '\n')} end
local bytes, count, fits = size_after(KEYS[1], first, #ARGV, max_bytes, max_keys)
if not fits then return {'state_full', decimal(count), decimal(bytes)} end

for i = first, #ARGV, 2 do redis.call('HSET', KEYS[1], 'l:' .. ARGV[i], own .. decimal(now)) end
return {'ok'}
