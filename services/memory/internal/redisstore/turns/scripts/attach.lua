-- Comes before begin.lua, after contents.lua. It stores the files of the message, which become artifacts with the
-- turn. KEYS from index at: arts, staged, and for each file its blob and its pieces. ARGV from index from: how
-- many versions and bytes a session may have, how many files; and for each file its name, the version that the
-- message names, digest, size, artifact, the number of pieces, and the pieces.

-- Returns the files, or nil and the reply that says why they cannot be stored.
local function check_files(at, from, count, bytes, now)
  local max_count, max_bytes, arts, staged = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), KEYS[at], KEYS[at + 1]
  local key, arg, mine, versions, added, moved = at + 2, from + 3, {}, {}, 0, false
  local files = {}
  for i = 1, tonumber(ARGV[from + 2]) do
    local file = {name = ARGV[arg], sha = ARGV[arg + 2], size = ARGV[arg + 3], artifact = ARGV[arg + 4], pieces = tonumber(ARGV[arg + 5]),
      key = key, arg = arg + 6}
    local version, latest = version_of(arts, file.name, file.sha .. ' ' .. file.size .. ' ')
    file.version, file.new = version, not latest
    if file.new then added, bytes = added + 1, bytes + tonumber(file.size) end
    versions[i], moved = decimal(file.version), moved or decimal(file.version) ~= ARGV[arg + 1]
    mine[file.sha .. '-' .. file.size] = true
    files[i], key, arg = file, key + 1 + file.pieces, file.arg + file.pieces
  end
  for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', staged, '+inf', '(' .. decimal(now))) do
    if not mine[other] then count, bytes = count + 1, bytes + size_of(other) end
  end
  if added > 0 and (count + added > max_count or bytes > max_bytes) then return nil, {'artifacts_full', decimal(count), decimal(bytes)} end
  if moved then return nil, {'versions', versions} end
  return files
end

-- Stores the new files.
local function attach(files, at, now)
  local arts, staged = KEYS[at], KEYS[at + 1]
  for _, file in ipairs(files) do
    if file.new then
      local version, value = decimal(file.version), file.sha .. ' ' .. file.size .. ' ' .. now .. ' ' .. file.artifact
      redis.call('HSET', arts, 'n:' .. file.name, version, 'v:' .. file.name .. '\0' .. version, value)
      if redis.call('HINCRBY', KEYS[file.key], 'refs', 1) == 1 then
        redis.call('HSET', KEYS[file.key], 'stored', file.size, 'hash', '')
        redis.call('PERSIST', KEYS[file.key])
        for i = 1, file.pieces do redis.call('SET', KEYS[file.key + i], ARGV[file.arg + i - 1]) end
        redis.call('ZREM', staged, file.sha .. '-' .. file.size)
      end
      redis.call('HINCRBY', KEYS[1], 'arts', 1)
      redis.call('HINCRBY', KEYS[1], 'art_bytes', file.size)
    end
  end
end
