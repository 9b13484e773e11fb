-- In front of the scripts that read the log.

-- Entries of the log from one id on, in the order of the command, at most limit, and no more
-- of their text than max_bytes, but at least one: ids and texts in turn, because a list in a
-- list is dear to return. They are read a few at a time: what is not returned is hardly read.
local function read(command, log, from, to, limit, max_bytes)
  local entries, n, bytes, few = {}, 0, 0, 16
  while n < limit do
    local some = redis.call(command, log, from, to, 'COUNT', math.min(few, limit - n))
    for _, entry in ipairs(some) do
      local text = entry[2][2]
      bytes = bytes + #text
      if bytes > max_bytes and n > 0 then return entries end
      entries[2 * n + 1], entries[2 * n + 2], n = entry[1], text, n + 1
    end
    if #some < few then return entries end
    from = '(' .. some[#some][1]
  end
  return entries
end
