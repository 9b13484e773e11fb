-- Comes first in every script of a turn. KEYS are meta, log and the turn, followed by the script's own.

-- Appends a message to the log. It is one field, because each field that a script reads costs as much as the entry.
local function append(seq, body, number, now)
  redis.call('XADD', KEYS[2], decimal(seq) .. '-0', 'm', number .. ' ' .. now .. ' ' .. body)
end

-- Returns the source of untrusted text that a session remembers after it read another one, as
-- conversation.Gravest does. had is false when it remembers none; source may be empty.
local function gravest(had, source)
  if not had then return source end
  local yields = string.sub(had, 1, #party) == party and source ~= '' and string.sub(source, 1, #party) ~= party
  return yields and source or had
end

-- Returns why the holder of an epoch may not write, or nil. current is the epoch of the session; turn begins with
-- the outcome of the turn.
local function check_epoch(epoch, current, turn)
  if not turn[1] then return {'not_found'} end
  if current ~= epoch then return {'fenced', current} end
  if turn[1] ~= '' then return {'turn_not_open', turn[1]} end
end

-- Returns why the holder of an epoch may not write, or nil. When the session can be read, it also returns values of
-- the turn's hash: outcome, and the named fields. The epoch of a worker is <epoch>/<step>: it may not write once its
-- step is committed.
local function check_turn(epoch, ...)
  local bar, current = check_session()
  if bar then return bar end
  local turn, step = redis.call('HMGET', KEYS[3], 'outcome', ...), nil
  epoch, step = string.match(epoch, '^(%d+)/?(%d*)$')
  local refusal = check_epoch(epoch, current, turn)
  if not refusal and step ~= '' and redis.call('HEXISTS', KEYS[3], 'sha' .. step) == 1 then
    refusal = {'step_over', step}
  end
  return refusal, turn
end

-- Returns the steps of a list such as '2,4' (or nil).
local function steps_of(list)
  local steps = {}
  for step in string.gmatch(list or '', '%d+') do steps[#steps + 1] = step end
  return steps
end

-- Reports whether a list of steps has a step.
local function contains_step(list, step)
  return string.find(',' .. (list or '') .. ',', ',' .. step .. ',', 1, true) ~= nil
end

-- Returns the first step of a list that a turn must commit before another step (or nil).
local function first_awaited(turn, list, step)
  if contains_step(list, step) then return nil end
  for _, awaited in ipairs(steps_of(list)) do
    if redis.call('HEXISTS', turn, 'sha' .. awaited) == 0 then return awaited end
  end
end

-- Ends the journals of the steps of a list, whose keys are KEYS from index first on: they stay for some ms, or are deleted
-- (0). The commit of a step has ended its journal already.
local function end_journals(turn, first, list, keep)
  for i, step in ipairs(steps_of(list)) do
    local key = KEYS[first + i - 1]
    if redis.call('HEXISTS', turn, 'sha' .. step) == 0 then
      if keep > 0 then redis.call('PEXPIRE', key, keep) else redis.call('DEL', key) end
    end
  end
end
