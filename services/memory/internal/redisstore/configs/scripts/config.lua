-- Changes the configuration of an agent, as memory.Configs describes. KEYS: config, a hash of version,
-- protocol, removed (the last version that removed any key), v:<key> with its value, and n:<key> with the
-- version that set it.
local base, protocol, least = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]) -- the least version of the generation
local max_keys, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

local had, stored, count, bytes = {}, redis.call('HGETALL', KEYS[1]), 0, 0
for i = 1, #stored, 2 do
  had[stored[i]] = stored[i + 1]
  if string.sub(stored[i], 1, 2) == 'v:' then
    count, bytes = count + 1, bytes + #stored[i] - 2 + #stored[i + 1]
  end
end
local version, removed = tonumber(had.version or '0'), tonumber(had.removed or '0')
local old = base ~= version
local merges = base < version and protocol == 'merge' and had.protocol == 'merge'
local changes = {}
for i = 6, #ARGV, 2 do
  local key, value, is = ARGV[i], ARGV[i + 1], had['v:' .. ARGV[i]] or ''
  if value ~= is then
    if old and not merges then return {'revision_mismatch', decimal(version), ''} end
    if old and tonumber(had['n:' .. key] or removed) > base then return {'revision_mismatch', decimal(version), key} end
    if is ~= '' then count, bytes = count - 1, bytes - #key - #is end
    if value ~= '' then count, bytes = count + 1, bytes + #key + #value end
    changes[#changes + 1] = {key, value}
  end
end
if #changes == 0 then return {'ok', stored} end
if count > max_keys or bytes > max_bytes then return {'config_full', decimal(count), decimal(bytes)} end

local now = decimal(math.max(version + 1, least))
redis.call('HSET', KEYS[1], 'version', now, 'protocol', protocol)
for _, change in ipairs(changes) do
  if change[2] == '' then
    redis.call('HDEL', KEYS[1], 'v:' .. change[1], 'n:' .. change[1])
    redis.call('HSET', KEYS[1], 'removed', now)
  else
    redis.call('HSET', KEYS[1], 'v:' .. change[1], change[2], 'n:' .. change[1], now)
  end
end
return {'ok', redis.call('HGETALL', KEYS[1])}
