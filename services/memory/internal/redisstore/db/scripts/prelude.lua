-- In front of every script. KEYS[1] is the meta of the session, but for scripts about what
-- sessions share, which must not call barred.
-- Every check comes before the first write, because a script is not rolled back.

-- Leases run by the clock of the server alone.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Numbers are stored as decimals. Doubles are exact up to 2^53, and so are epochs.
local function decimal(n) return string.format('%.0f', n) end

-- Whether the user of whom a scope is was erased with the session in whose name a change
-- comes; its id begins with the session. Such a change is late.
local function struck(erased, id) return redis.call('ZSCORE', erased, string.match(id, '^[^/]*')) end

-- What bars everybody from the session: that it was deleted, or that another version wrote
-- it. Nil when nothing does, and then values of its meta: epoch, and the fields that are
-- named; false for one that is not there.
local function barred(...)
  local meta = redis.call('HMGET', KEYS[1], 'deleted', 'schema', 'epoch', ...)
  if meta[1] then return {'deleted'} end
  if meta[2] and meta[2] ~= schema then return {'schema', meta[2]} end
  return nil, unpack(meta, 3)
end
