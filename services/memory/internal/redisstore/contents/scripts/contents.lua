-- Comes first in the scripts about artifacts and their contents, which belong to a session or a user. The
-- hash counts holds how many versions there are, arts, and their bytes, art_bytes. The sorted set staged
-- holds the contents that no version has.

-- Returns the size of a content from its name, <sha>-<size>. A digest has 64 digits.
local function size_of(name) return tonumber(string.sub(name, 66)) end

-- Makes room for a content that is not complete.
local function make_room(counts, staged, blob, name, size, max_count, max_bytes, keep)
  local known = redis.call('HMGET', blob, 'stored', 'hash')
  local had = redis.call('HMGET', counts, 'arts', 'art_bytes')
  local now, count, bytes = now_ms(), tonumber(had[1] or 0), tonumber(had[2] or 0)
  for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', staged, '+inf', '(' .. decimal(now))) do
    if other ~= name then count, bytes = count + 1, bytes + size_of(other) end
  end
  if count + 1 > max_count or bytes + size > max_bytes then return {'artifacts_full', decimal(count), decimal(bytes)} end
  if known[1] then return {'ok', known[1], known[2]} end

  -- All its pieces expire with it, at the same time.
  local ends = decimal(now + keep)
  redis.call('ZREMRANGEBYSCORE', staged, '-inf', decimal(now))
  redis.call('ZADD', staged, ends, name)
  redis.call('PEXPIREAT', staged, ends)
  redis.call('HSET', blob, 'stored', '0', 'refs', '0', 'hash', '', 'until', ends)
  redis.call('PEXPIREAT', blob, ends)
  return {'ok', '0', ''}
end

-- Returns the version of a content under a name, and its stored form, if it is the latest version. Otherwise returns
-- the version that it would get.
local function version_of(arts, name, content)
  local last = tonumber(redis.call('HGET', arts, 'n:' .. name) or 0)
  for version = last, 1, -1 do
    local latest = redis.call('HGET', arts, 'v:' .. name .. '\0' .. decimal(version))
    if latest then
      if string.sub(latest, 1, #content) == content then return version, latest end
      break
    end
  end
  return last + 1
end

-- Makes a stored content the next version of a name. Returns the reply, and the time when the version is new. blob is
-- the index in KEYS of the content, followed by its pieces up to the end.
local function put_version(arts, counts, staged, blob, name, sha, size, artifact, max_count, max_bytes)
  local content = sha .. ' ' .. size .. ' '
  local next, latest = version_of(arts, name, content)
  if latest then return {'ok', decimal(next), latest} end
  local had = redis.call('HMGET', counts, 'arts', 'art_bytes')
  local count, bytes = tonumber(had[1] or 0) + 1, tonumber(had[2] or 0) + tonumber(size)
  if count > max_count or bytes > max_bytes then return {'artifacts_full', had[1] or '0', had[2] or '0'} end

  local now = decimal(now_ms())
  local version, value = decimal(next), content .. now .. ' ' .. artifact
  redis.call('HSET', arts, 'n:' .. name, version, 'v:' .. name .. '\0' .. version, value)
  if redis.call('HINCRBY', KEYS[blob], 'refs', 1) == 1 then
    redis.call('ZREM', staged, sha .. '-' .. size)
    for i = blob, #KEYS do redis.call('PERSIST', KEYS[i]) end
  end
  redis.call('HSET', counts, 'arts', decimal(count), 'art_bytes', decimal(bytes))
  return {'ok', version, value}, now
end

-- Removes versions, and the contents that no version has any more. Returns how many versions it removed. ARGV from
-- index first holds for each its field, its size and its number of keys; KEYS from index key its blob and its pieces.
local function drop_versions(arts, counts, key, first)
  local removed, bytes = 0, 0
  for i = first, #ARGV, 3 do
    local field, size, keys = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    if redis.call('HDEL', arts, field) == 1 then
      removed, bytes = removed + 1, bytes + size
      if redis.call('HINCRBY', KEYS[key], 'refs', -1) == 0 then
        for k = key, key + keys - 1 do redis.call('UNLINK', KEYS[k]) end
      end
    end
    key = key + keys
  end
  if removed > 0 then
    redis.call('HINCRBY', counts, 'arts', -removed)
    redis.call('HINCRBY', counts, 'art_bytes', decimal(0 - bytes)) -- not -0
  end
  return removed
end
