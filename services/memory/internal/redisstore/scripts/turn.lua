-- In front of every script of a turn. KEYS are meta, log and the turn, and then its own.

local function append(seq, body, number, now)
  redis.call('XADD', KEYS[2], decimal(seq) .. '-0', 'b', body, 'n', number, 't', decimal(now))
end

-- What keeps the holder of an epoch from writing, nil when nothing does, and, when the
-- session can be read, values of the turn's hash: outcome, and the fields that are named.
local function held(epoch, ...)
  local bar, current = barred()
  if bar then return bar end
  local turn = redis.call('HMGET', KEYS[3], 'outcome', ...)
  if not turn[1] then return {'not_found'}, turn end
  if current ~= epoch then return {'fenced', current}, turn end
  if turn[1] ~= '' then return {'turn_not_open', turn[1]}, turn end
  return nil, turn
end
