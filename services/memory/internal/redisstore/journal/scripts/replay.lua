-- Returns entries of a running step, sorted by number, as many as fit. KEYS: meta, log, turn, jrnl of the step.
local epoch, after, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local refusal = check_turn(epoch)
if refusal then return refusal end
return {'ok', page(KEYS[4], after, max_bytes)}
