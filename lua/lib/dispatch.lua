-- lib/dispatch: ids with their records -> stream and dispatched, and wakes idle workers.
-- Needs lib/flow, lib/failed. The caller removes the old place afterwards: Lua has no rollback, so a job may for
-- one call be in two places, never in none. Returns false on a damaged key, with nothing named.
local BELL_CAP = 32

local function ring(bell, count)
  local rung = redis.pcall('LLEN', bell)
  if failed(rung) then return end -- it wakes nobody; workers also look by themselves
  local tokens = math.min(count, BELL_CAP - rung)
  if tokens > 0 then
    local ones = {}
    for i = 1, tokens do ones[i] = '1' end
    redis.call('RPUSH', bell, unpack(ones))
  end
end

local function dispatch(stream, dispatched, flow, bell, ids, docs)
  if not flow then return false end
  local named, entries = {}, {}
  for i = 1, #ids do
    local entry = redis.pcall('XADD', stream, '*', 'id', ids[i], 'doc', docs[i])
    if failed(entry) then return false end
    entries[i] = entry
    named[i * 2 - 1] = ids[i]
    named[i * 2] = entry
  end
  if failed(redis.pcall('HSET', dispatched, unpack(named))) then
    redis.call('XDEL', stream, unpack(entries)) -- nothing names them: they would pile up with every try
    return false
  end
  flow.depth = redis.call('HINCRBY', flow.key, 'depth', #ids)
  if not flow.has_group then -- at 0, so that consumers which come later see what is there already
    redis.pcall('XGROUP', 'CREATE', stream, 'workers', '0')
    redis.call('HSET', flow.key, 'group', '1')
    flow.has_group = '1'
  end
  ring(bell, #ids)
  return true
end
