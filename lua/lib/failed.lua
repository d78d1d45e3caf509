-- lib/failed: whether a pcall met a damaged key. Being out of memory is not damage: it ends the call,
-- and since nothing was written before it, as a whole.
local function failed(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if string.find(reply.err, 'OOM', 1, true) then error(reply) end
  return true
end
