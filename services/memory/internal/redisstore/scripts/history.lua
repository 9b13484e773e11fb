-- Returns messages above a sequence, and the summary when it is one of them. KEYS: meta, log.
local after, limit = tonumber(ARGV[1]), tonumber(ARGV[2])

local bar = barred()
if bar then return bar end
local meta = redis.call('HMGET', KEYS[1], 'schema', 'summarized', 'summary')
if not meta[1] then return {'no_session'} end
local summarized, summary = tonumber(meta[2] or 0), ''
if after < summarized then
  summary, after, limit = meta[3], summarized, limit - 1
else
  summarized = 0
end
local entries = {}
if limit > 0 then
  entries = redis.call('XRANGE', KEYS[2], decimal(after + 1) .. '-0', '+', 'COUNT', decimal(limit))
end
return {'ok', entries, decimal(summarized), summary}
