-- Changes the state of one scope. ARGV holds keys and values in turn, from index first to index last. An
-- empty value removes its key.

-- Returns the bytes and keys of the scope after the changes, and whether they are within the limits, if any are given.
-- Changes that make a scope smaller are accepted even if it is still too large.
local function size_after(scope, first, last, max_bytes, max_keys)
  local had = redis.call('HMGET', scope, 'bytes', 'keys')
  local bytes, count = tonumber(had[1] or 0), tonumber(had[2] or 0)
  if max_bytes then max_bytes, max_keys = math.max(max_bytes, bytes), math.max(max_keys, count) end
  for i = first, last, 2 do
    local old = redis.call('HSTRLEN', scope, 'v:' .. ARGV[i])
    if old > 0 then bytes, count = bytes - #ARGV[i] - old, count - 1 end
    if ARGV[i + 1] ~= '' then bytes, count = bytes + #ARGV[i] + #ARGV[i + 1], count + 1 end
  end
  return bytes, count, not max_bytes or bytes <= max_bytes and count <= max_keys
end

-- Makes the changes and returns the revision of the scope.
local function change(scope, first, last, bytes, count)
  for i = first, last, 2 do
    if ARGV[i + 1] == '' then
      redis.call('HDEL', scope, 'v:' .. ARGV[i])
    else
      redis.call('HSET', scope, 'v:' .. ARGV[i], ARGV[i + 1])
    end
  end
  redis.call('HSET', scope, 'bytes', decimal(bytes), 'keys', decimal(count))
  return redis.call('HINCRBY', scope, 'rev', 1)
end

-- Like change, for a scope that sessions share. Notes the revision of each key, and removes the locks of the keys.
local function change_shared(scope, first, last, bytes, count)
  local revision = change(scope, first, last, bytes, count)
  for i = first, last, 2 do
    if ARGV[i + 1] == '' then
      redis.call('HDEL', scope, 'r:' .. ARGV[i], 'l:' .. ARGV[i])
    else
      redis.call('HSET', scope, 'r:' .. ARGV[i], decimal(revision))
      redis.call('HDEL', scope, 'l:' .. ARGV[i])
    end
  end
  return revision
end

-- Returns a lock of one of the keys that does not begin with own, and its key; or nil.
local function find_lock(scope, first, last, own)
  for i = first, last, 2 do
    local lock = redis.call('HGET', scope, 'l:' .. ARGV[i])
    if lock and string.sub(lock, 1, #own) ~= own then return lock, ARGV[i] end
  end
end
