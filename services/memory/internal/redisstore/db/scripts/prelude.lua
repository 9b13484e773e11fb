-- Comes first in every script. KEYS[1] is the meta hash of the session. Scripts about data that sessions
-- share have no such key, and must not call check_session.
-- Every check comes before the first write, because Redis does not roll a script back.

-- Leases are measured only by the clock of the server.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Numbers are stored as decimals. Doubles are exact up to 2^53, and so are epochs.
local function decimal(n) return string.format('%.0f', n) end

-- Reports whether the session of a change was erased with its user. The id of the change begins with the session.
-- Such a change comes too late.
local function is_erased(erased, id) return redis.call('ZSCORE', erased, string.match(id, '^[^/]*')) end

-- Returns why no caller can use the session: it was deleted, or another version wrote it. Otherwise returns nil and
-- values of its meta hash: epoch, and the named fields (false for a missing one).
local function check_session(...)
  local meta = redis.call('HMGET', KEYS[1], 'deleted', 'schema', 'epoch', ...)
  if meta[1] then return {'deleted'} end
  if meta[2] and meta[2] ~= schema then return {'schema', meta[2]} end
  return nil, unpack(meta, 3)
end
