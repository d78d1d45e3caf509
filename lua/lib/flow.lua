-- lib/flow: how many more entries the stream of a queue may hold, and the order behind that.
-- Needs lib/gate (depth_limit), lib/failed. depth is our own counter: foreign consumers distort XLEN and lag.
local PRIORITY_STEP = 1e14 -- a ready score is priority * this + virtual start time, exact in a double
local VIRTUAL_STEP = 1000 -- one job of a tenant of weight 1

-- Returns nil on a damaged key.
local function read_flow(flow_key)
  local found = redis.pcall('HMGET', flow_key, 'depth', 'limit', 'V', 'group')
  if failed(found) then return nil end
  local limit = found[2] or depth_limit or '10000'
  local depth = tonumber(found[1]) or 0
  local room = math.huge
  if limit ~= 'none' then room = math.max(0, tonumber(limit) - depth) end
  return { key = flow_key, depth = depth, room = room, virtual = tonumber(found[3]) or 0,
    has_group = found[4] }
end

-- Whether jobs wait in ready: nobody may overtake them. Nothing waits in a damaged one.
local function has_waiting(ready)
  local count = redis.pcall('ZCARD', ready)
  return not failed(count) and count > 0
end
