-- Returns messages above a sequence, and the summary when its sequence is above it too. With an epoch other than
-- 0, a turn must be open under that epoch. KEYS: meta, log.
local after, limit, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local bar, current, open = check_session('open')
if bar then return bar end
if ARGV[4] ~= '0' and current then
  if current ~= ARGV[4] then return {'fenced', current} end
  if open == '' then return {'turn_over'} end
end
local meta = redis.call('HMGET', KEYS[1], 'schema', 'summarized', 'summary', 'saved')
if not meta[1] then return {'no_session'} end
local summarized, summary = tonumber(meta[2] or 0), ''
if after < summarized then
  summary, after, limit = meta[3], summarized, limit - 1
else
  summarized = 0
end
-- Only a turn sees messages that are not saved yet.
local last = meta[4] and ARGV[4] == '0' and meta[4] .. '-0' or '+'
local entries = read('XRANGE', KEYS[2], decimal(after + 1) .. '-0', last, limit, max_bytes)
return {'ok', entries, decimal(summarized), summary}
