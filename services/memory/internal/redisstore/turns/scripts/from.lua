-- In front of begin.lua: what a turn begins with that goes on from an earlier one. KEYS[6] is the
-- turn that failed and whose place it takes, and behind it jrnl of each step that is to be done
-- again, there and here; or the state of the session, when that begins with a copy.
-- ARGV from the place at: how many steps are inherited, and of each its number and result; whether
-- there is a copy, '0' and how long journals are kept, or '1' and then whether it has a summary, that, how many bytes the messages have,
-- how many there are before the turn's own and behind it, of each its time and body, and state as
-- keys and values up to the end.

local function from_at(at)
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
  new.count, new.messages = new.before + new.behind, arg + 6
  new.state = new.messages + 2 * new.count
  return new
end

-- The hash of a turn that failed, and its steps that are to be done again and have a journal; or
-- what keeps the turn from being gone on with.
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

-- Makes the inherited steps fields of the turn.
local function inherit(new, fields)
  for step, result in pairs(new.results) do
    local n = decimal(step)
    for _, value in ipairs({'sha' .. n, 'inherited', 'result' .. n, result}) do fields[#fields + 1] = value end
  end
end

-- Takes the journals over of the steps that are to be done again. What was done must not be done
-- again, so that nobody goes on without a journal that was.
local function take_over(failed, fields, keep)
  for i, step in ipairs(failed.again) do
    redis.call('RENAME', KEYS[5 + 2 * i], KEYS[6 + 2 * i])
    redis.call('PEXPIRE', KEYS[6 + 2 * i], keep)
    fields[#fields + 1], fields[#fields + 2] = 'jrnl' .. step, '1'
  end
end

-- Copies the messages before the turn's own, and state; returns the sequence of the last.
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
    local bytes, count = weighed(KEYS[6], new.state, #ARGV)
    change(KEYS[6], new.state, #ARGV, bytes, count)
  end
  return seq
end

-- Copies those behind it.
local function copy_behind(new, seq, number)
  for i = new.before, new.count - 1 do
    seq = seq + 1
    append(seq, ARGV[new.messages + 2 * i + 1], number, ARGV[new.messages + 2 * i])
  end
  return seq
end
