-- In front of every script of a turn. KEYS are meta, log and the turn, and then its own.

-- One field, because each that a script reads costs as much as reading the entry itself.
local function append(seq, body, number, now)
  redis.call('XADD', KEYS[2], decimal(seq) .. '-0', 'm', number .. ' ' .. now .. ' ' .. body)
end

-- Which source of untrusted words the session remembers, when it remembers one, or false, and there
-- is another, or an empty one: as conversation.Gravest.
local function gravest(had, source)
  if not had then return source end
  local yields = string.sub(had, 1, #party) == party and source ~= '' and string.sub(source, 1, #party) ~= party
  return yields and source or had
end

-- What keeps the holder of an epoch from writing, when the session's is current and turn
-- begins with the outcome of the turn. Nil when nothing does.
local function unheld(epoch, current, turn)
  if not turn[1] then return {'not_found'} end
  if current ~= epoch then return {'fenced', current} end
  if turn[1] ~= '' then return {'turn_not_open', turn[1]} end
end

-- What keeps the holder of an epoch from writing, nil when nothing does, and, when the
-- session can be read, values of the turn's hash: outcome, and the fields that are named.
-- Of a worker the epoch is <epoch>/<step>: it writes nothing more once its step is committed.
local function held(epoch, ...)
  local bar, current = barred()
  if bar then return bar end
  local turn, step = redis.call('HMGET', KEYS[3], 'outcome', ...), nil
  epoch, step = string.match(epoch, '^(%d+)/?(%d*)$')
  local refusal = unheld(epoch, current, turn)
  if not refusal and step ~= '' and redis.call('HEXISTS', KEYS[3], 'sha' .. step) == 1 then
    refusal = {'step_over', step}
  end
  return refusal, turn
end
