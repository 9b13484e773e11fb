-- In front of the scripts about artifacts and their contents, which are a session's or a
-- user's. counts is the hash that knows how many versions there are, arts, and their bytes,
-- art_bytes; staged are the contents that no version has.

-- How large a content is, by its name, <sha>-<size>: a digest has 64 digits.
local function size_of(name) return tonumber(string.sub(name, 66)) end

-- Makes room for a content that is not there in full.
local function room(counts, staged, blob, name, size, max_count, max_bytes, keep)
  local known = redis.call('HMGET', blob, 'stored', 'hash')
  local had = redis.call('HMGET', counts, 'arts', 'art_bytes')
  local now, count, bytes = now_ms(), tonumber(had[1] or 0), tonumber(had[2] or 0)
  for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', staged, '+inf', '(' .. decimal(now))) do
    if other ~= name then count, bytes = count + 1, bytes + size_of(other) end
  end
  if count + 1 > max_count or bytes + size > max_bytes then return {'artifacts_full', decimal(count), decimal(bytes)} end
  if known[1] then return {'ok', known[1], known[2]} end

  -- Its pieces are forgotten with it, whenever they came: all at one time.
  local ends = decimal(now + keep)
  redis.call('ZREMRANGEBYSCORE', staged, '-inf', decimal(now))
  redis.call('ZADD', staged, ends, name)
  redis.call('PEXPIREAT', staged, ends)
  redis.call('HSET', blob, 'stored', '0', 'refs', '0', 'hash', '', 'until', ends)
  redis.call('PEXPIREAT', blob, ends)
  return {'ok', '0', ''}
end

-- The version that a content has under a name, with what is stored of it, if it is the latest;
-- else the one that it would get.
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

-- Makes a content that is there the next version of a name, and returns it, and the time when
-- it is new. blob is the place in KEYS of the content, whose pieces go on to the end.
local function shelve(arts, counts, staged, blob, name, sha, size, artifact, max_count, max_bytes)
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

-- Removes versions, and contents that none has any more; says how many. ARGV holds from first
-- on for each its field, its size and how many keys; KEYS from key on its blob and its pieces.
local function discard(arts, counts, key, first)
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
