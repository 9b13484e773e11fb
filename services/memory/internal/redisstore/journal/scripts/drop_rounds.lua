-- Removes steps from the history of an agent. KEYS: meta, rounds of the agent, jrnl of each step.
-- ARGV: the name of the agent; then the id of each step and its bytes.
local bar = check_session()
if bar then return bar end
local bytes = tonumber(redis.call('HGET', KEYS[1], 'round_bytes') or 0)
for i = 2, #ARGV, 2 do
  if redis.call('XDEL', KEYS[2], ARGV[i]) == 1 then bytes = bytes - tonumber(ARGV[i + 1]) end
  redis.call('UNLINK', KEYS[2 + i / 2])
end
redis.call('HSET', KEYS[1], 'round_bytes', decimal(bytes))
if redis.call('XLEN', KEYS[2]) == 0 then
  local left = {}
  for name in string.gmatch(redis.call('HGET', KEYS[1], 'agents') or '', '%S+') do
    if name ~= ARGV[1] then left[#left + 1] = name end
  end
  redis.call('UNLINK', KEYS[2])
  redis.call('HSET', KEYS[1], 'agents', table.concat(left, ' '))
end
return {'ok'}
