-- Returns entries of a running step, by number, as many as fit. KEYS: meta, log, turn, jrnl
-- of the step.
local epoch, after, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local refusal = held(epoch)
if refusal then return refusal end
local numbers, seen = {}, {}
for _, field in ipairs(redis.call('HKEYS', KEYS[4])) do
  local prefix = string.match(field, '^(%d+):')
  local number = prefix and tonumber(prefix)
  if number and number > after and not seen[number] then
    seen[number] = true
    numbers[#numbers + 1] = number
  end
end
table.sort(numbers)

local entries, bytes = {}, 0
for _, number in ipairs(numbers) do
  local pair = redis.call('HMGET', KEYS[4], decimal(number) .. ':i', decimal(number) .. ':d')
  bytes = bytes + #(pair[1] or '') + #(pair[2] or '')
  if bytes > max_bytes and #entries > 0 then break end
  if pair[1] then entries[#entries + 1] = pair[1] end
  if pair[2] then entries[#entries + 1] = pair[2] end
end
return {'ok', entries}
