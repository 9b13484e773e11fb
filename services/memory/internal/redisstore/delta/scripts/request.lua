-- Comes first in the scripts that change state because a caller asks for it.

-- Returns why the caller may not change state, or nil. Without an epoch, the caller acts without a turn.
local function check_caller(epoch)
  local bar = check_session()
  if bar then return bar end
  if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return {'no_session'} end
  if epoch ~= '' then
    local refusal = check_turn(epoch)
    return refusal
  end
end

-- Changes a scope, once for each id. ARGV from index first holds how many keys and bytes the scope may hold, how many
-- requests it remembers, and then the delta. A change that was already decided is not made again. make is change, or
-- change_shared for a scope that sessions share.
local function request(scope, reqs, id, if_revision, first, make, decided)
  local max_keys, max_bytes, known = tonumber(ARGV[first]), tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  local answered = redis.call('ZSCORE', reqs, id)
  if answered then return {'ok', answered} end
  local revision = redis.call('HGET', scope, 'rev') or '0'
  if if_revision ~= '' and if_revision ~= revision then return {'revision_mismatch', revision} end
  local bytes, count, fits = size_after(scope, first + 3, #ARGV, max_bytes, max_keys)
  if not fits then return {'state_full', decimal(count), decimal(bytes)} end
  if decided then return {'decided'} end

  revision = decimal(make(scope, first + 3, #ARGV, bytes, count))
  redis.call('ZADD', reqs, revision, id)
  redis.call('ZREMRANGEBYRANK', reqs, 0, -1 - known)
  return {'ok', revision}
end
