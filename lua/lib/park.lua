-- lib/park: puts ids into ready; start-time fair queueing at insertion (Goyal et al. 1996), so that
-- release needs no scan: a tenant's next job starts at max(V, its last + one step).
-- Needs lib/flow, lib/failed. priorities and tenants are lists beside ids. Returns false on a damaged key.
local function park(ready, flow, ids, priorities, tenants)
  if not flow then return false end
  local last, scored = {}, {}
  for i = 1, #ids do
    local tenant = tenants[i]
    if not last[tenant] then
      last[tenant] = tonumber(redis.call('HGET', flow.key, 't:' .. tenant)) or 0
    end
    last[tenant] = math.max(flow.virtual, last[tenant] + VIRTUAL_STEP)
    scored[i * 2 - 1] = string.format('%.0f', priorities[i] * PRIORITY_STEP + last[tenant])
    scored[i * 2] = ids[i]
  end
  if failed(redis.pcall('ZADD', ready, unpack(scored))) then return false end
  local fields = {}
  for tenant, value in pairs(last) do
    fields[#fields + 1] = 't:' .. tenant
    fields[#fields + 1] = string.format('%.0f', value)
  end
  redis.call('HSET', flow.key, unpack(fields))
  return true
end
