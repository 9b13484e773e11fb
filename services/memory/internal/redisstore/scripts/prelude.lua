-- In front of every script. KEYS are the same in all: 1 meta, 2 log, 3 the turn.
-- Every check comes before the first write, because a script is not rolled back.

-- Leases run by the clock of the server alone.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Numbers are stored as decimals. Doubles are exact up to 2^53, and so are epochs.
local function decimal(n) return string.format('%.0f', n) end

local function append(seq, body, number, now)
  redis.call('XADD', KEYS[2], decimal(seq) .. '-0', 'b', body, 'n', number, 't', decimal(now))
end
