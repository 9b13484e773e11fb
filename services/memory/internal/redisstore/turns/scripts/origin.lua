-- Comes before begin.lua. It handles a turn that resumes a failed one, or begins with a copy. KEYS[6] is the
-- failed turn, followed by jrnl of each step that must run again, in the old turn and in the new one; or KEYS[6]
-- is the state of the session, which begins with a copy, followed by the rounds of each agent in the copy.
-- ARGV from index at: how many steps are inherited, and the number and result of each. Then '0' and how long
-- journals are kept; or '1' for a copy, and then whether it has a summary, the summary, how many bytes the
-- messages have, how many come before the turn's own message and how many after it, the agents with rounds, the bytes
-- of the rounds and how many steps have some; the time and body of each message; for each of these steps the number of
-- the agent, the message before, turn, step, bytes and rounds; and the state as keys and values up to the end.

local function read_origin(at)
  local new, arg = {results = {}, step = 0, count = 0, bytes = 0}, at + 1
  for i = 1, tonumber(ARGV[at]) do
    new.step = tonumber(ARGV[arg])
    new.results[new.step] = ARGV[arg + 1]
    arg = arg + 2
  end
  new.copy = ARGV[arg] == '1'
  if not new.copy then
    new.keep = ARGV[arg + 1]
    return new
  end
  new.summary = ARGV[arg + 1] == '1' and ARGV[arg + 2] or nil
  new.bytes, new.before, new.behind = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4]), tonumber(ARGV[arg + 5])
  new.agents, new.round_bytes, new.steps = ARGV[arg + 6], tonumber(ARGV[arg + 7]), tonumber(ARGV[arg + 8])
  new.count, new.messages = new.before + new.behind, arg + 9
  new.rounds = new.messages + 2 * new.count
  new.state = new.rounds + 6 * new.steps
  return new
end

-- Returns the hash of the failed turn, with the steps that must run again and have a journal; or nil and the reply that
-- says why the turn cannot be resumed.
local function resumable(new, turns)
  local failed, again = {}, {}
  local stored = redis.call('HGETALL', KEYS[6])
  for i = 1, #stored, 2 do failed[stored[i]] = stored[i + 1] end
  if not failed.number then return nil, {'failed_long_ago'} end
  local first = failed.first .. '-0'
  local there = failed.first == '0' or #redis.call('XRANGE', KEYS[2], first, first) > 0
  if failed.outcome ~= 'failed' or failed.number ~= turns or not there then return nil, {'gone_on'} end
  for field in pairs(failed) do
    local step = string.match(field, '^jrnl(%d+)$')
    if step and not new.results[tonumber(step)] then again[#again + 1] = tonumber(step) end
  end
  table.sort(again)
  for i, step in ipairs(again) do again[i] = decimal(step) end
  failed.again = again
  return failed
end

-- Adds the inherited steps to the fields of the turn.
local function inherit(new, fields)
  for step, result in pairs(new.results) do
    local n = decimal(step)
    for _, value in ipairs({'sha' .. n, 'inherited', 'result' .. n, result}) do fields[#fields + 1] = value end
  end
end

-- Moves the journals of the steps that must run again to the new turn. What was done must not be done again, so a turn
-- is not resumed when a journal was lost.
local function take_over(failed, fields, keep)
  for i, step in ipairs(failed.again) do
    redis.call('RENAME', KEYS[5 + 2 * i], KEYS[6 + 2 * i])
    redis.call('PEXPIRE', KEYS[6 + 2 * i], keep)
    fields[#fields + 1], fields[#fields + 2] = 'jrnl' .. step, '1'
  end
end

-- Copies the messages before the turn's own message, and the state. Returns the sequence of the last message.
local function copy_before(new, seq)
  if new.summary then
    seq = seq + 1
    redis.call('HSET', KEYS[1], 'summarized', decimal(seq), 'summary', new.summary)
  end
  for i = 0, new.before - 1 do
    seq = seq + 1
    append(seq, ARGV[new.messages + 2 * i + 1], '0', ARGV[new.messages + 2 * i])
  end
  if ARGV[new.state] then
    local bytes, count = size_after(KEYS[6], new.state, #ARGV)
    change(KEYS[6], new.state, #ARGV, bytes, count)
  end
  return seq
end

-- Copies the rounds of the agents. turn is the id of the new turn.
local function copy_rounds(new, turn)
  if new.steps == 0 then return end
  for i = 0, new.steps - 1 do
    local at = new.rounds + 6 * i
    redis.call('XADD', KEYS[6 + tonumber(ARGV[at])], ARGV[at + 1] .. '-' .. decimal(i + 1), 'm',
      table.concat({ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], turn, ARGV[at + 5]}, ' '))
  end
  redis.call('HSET', KEYS[1], 'rounds', decimal(new.steps), 'round_bytes', decimal(new.round_bytes), 'agents', new.agents)
end

-- Copies the messages after it.
local function copy_behind(new, seq, number)
  for i = new.before, new.count - 1 do
    seq = seq + 1
    append(seq, ARGV[new.messages + 2 * i + 1], number, ARGV[new.messages + 2 * i])
  end
  return seq
end
