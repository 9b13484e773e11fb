-- Comes first in the scripts that read a journal. page returns the entries above a number, sorted by number, as
-- many as fit.
local function page(key, after, max_bytes)
  local numbers, seen = {}, {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
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
    local pair = redis.call('HMGET', key, decimal(number) .. ':i', decimal(number) .. ':d')
    bytes = bytes + #(pair[1] or '') + #(pair[2] or '')
    if bytes > max_bytes and #entries > 0 then break end
    if pair[1] then entries[#entries + 1] = pair[1] end
    if pair[2] then entries[#entries + 1] = pair[2] end
  end
  return entries
end
