-- In front of the scripts that read the log.

-- Entries of the log from one id on, in the order of the command, at most limit, and no more
-- of their bodies than max_bytes, but at least one. They are read a few at a time: what is
-- not returned is hardly read.
local function read(command, log, from, to, limit, max_bytes)
  local entries, bytes, few = {}, 0, 16
  while #entries < limit do
    local some = redis.call(command, log, from, to, 'COUNT', decimal(math.min(few, limit - #entries)))
    for _, entry in ipairs(some) do
      bytes = bytes + #entry[2][2] -- append writes the body first
      if bytes > max_bytes and #entries > 0 then return entries end
      entries[#entries + 1] = entry
    end
    if #some < few then return entries end
    from = '(' .. some[#some][1]
  end
  return entries
end
