-- lib/failed: whether a pcall met a damaged key, one of another type. Every other refusal (no memory, a
-- replica, too few replicas) is not damage: it ends the call.
local function failed(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply) end
  return true
end

-- The score of an id; a damaged zset holds nobody.
local function score_of(key, id)
  local found = redis.pcall('ZSCORE', key, id)
  return not failed(found) and found
end
