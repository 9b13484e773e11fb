-- Comes first in the scripts that read the log.

-- Returns entries of the log from an id on, in the order of the command: at most limit, and at most max_bytes of
-- text, but at least one. Ids and texts are in turn, because nested lists are expensive to return. Entries are read a
-- few at a time, so that few are read in vain.
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
