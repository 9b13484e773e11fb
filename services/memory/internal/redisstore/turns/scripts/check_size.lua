-- Checks whether a commit may change a scope that sessions share. KEYS: state.
local max_keys, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

local bytes, count, fits = size_after(KEYS[1], 3, #ARGV, max_bytes, max_keys)
if not fits then return {'state_full', decimal(count), decimal(bytes)} end
return {'ok'}
