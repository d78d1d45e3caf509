-- recount: settles pending entries that no job needs, and sets the depth of one queue to what its
-- stream holds. Depth is our own counter; an entry that somebody deletes by hand leaves it too high.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] dispatched  redjob:{p}:dispatched     hash
-- KEYS[3] flow        redjob:{p}:flow:<queue>   hash
-- KEYS[4] stream      redjob:{p}:stream:<queue> stream
-- ARGV[1..] entry     pending entries that no job was seen to name
-- Returns: OK, seq, durable_seq, now_ms, depth before, depth now, settled entries
-- Refuses: NOTREADY partition not opened; REBUILDING try again later
-- @include lib/gate
-- @include lib/now

local refused = gate()
if refused then return { refused } end
local before = tonumber(redis.call('HGET', KEYS[3], 'depth')) or 0
local settled = {}
for _, entry in ipairs(ARGV) do
  local found = redis.call('XRANGE', KEYS[4], entry, entry)[1]
  local fields = found and found[2]
  local id = fields and fields[1] == 'id' and fields[2]
  if not id or redis.call('HGET', KEYS[2], id) ~= entry then settled[#settled + 1] = entry end
end
if #settled > 0 then
  redis.call('XACK', KEYS[4], 'workers', unpack(settled))
  redis.call('XDEL', KEYS[4], unpack(settled))
end
local depth = redis.call('XLEN', KEYS[4])
if depth ~= before then redis.call('HSET', KEYS[3], 'depth', depth) end
return { 'OK', seq, durable_seq, now_ms, before, depth, #settled }
