-- renew: membership of one node and its partition leases, at one quorum key (Redlock style).
-- KEYS[1] nodes       redjob:{q}:nodes          hash  node:<name> -> '<since ms> <until ms>',
--   part:<index> -> '<node> <until ms>'
-- ARGV[1] node        random name of the scheduler process
-- ARGV[2] ttl_ms      0 leaves: membership and all leases are dropped
-- ARGV[3] want        partitions to take or keep, separated by spaces
-- ARGV[4] drop        partitions to give up
-- Returns: OK, now_ms, {node, since_ms, ...}, {partition granted, ...}, {partition, node, ...} of others
-- @include lib/now

redis.call('HDEL', KEYS[1], '') -- deletes nothing and lets the writes below through at maxmemory
local node, ttl = ARGV[1], tonumber(ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
local nodes, parts, gone, set = {}, {}, {}, {}
for i = 1, #all, 2 do
  local field, first, until_ms = all[i], string.match(all[i + 1], '^(%S+) (%d+)$')
  local name = string.match(field, '^node:(.*)$')
  local live = until_ms and tonumber(until_ms) > now_ms
  if not live then gone[#gone + 1] = field
  elseif name then nodes[name] = first
  else parts[string.sub(field, 6)] = first end
end
for index in string.gmatch(ARGV[4], '%d+') do
  if parts[index] == node then
    parts[index] = nil
    gone[#gone + 1] = 'part:' .. index
  end
end
local granted = {}
if ttl == 0 then
  nodes[node] = nil
  gone[#gone + 1] = 'node:' .. node
  for index, holder in pairs(parts) do
    if holder == node then
      parts[index] = nil
      gone[#gone + 1] = 'part:' .. index
    end
  end
else
  local until_ms = string.format('%.0f', now_ms + ttl)
  nodes[node] = nodes[node] or string.format('%.0f', now_ms)
  set[1], set[2] = 'node:' .. node, nodes[node] .. ' ' .. until_ms
  for index in string.gmatch(ARGV[3], '%d+') do
    if not parts[index] or parts[index] == node then
      parts[index] = node
      granted[#granted + 1] = tonumber(index)
      set[#set + 1] = 'part:' .. index
      set[#set + 1] = node .. ' ' .. until_ms
    end
  end
end
if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
if #set > 0 then redis.call('HSET', KEYS[1], unpack(set)) end
local members, others = {}, {}
for name, since in pairs(nodes) do
  members[#members + 1] = name
  members[#members + 1] = since
end
for index, holder in pairs(parts) do
  if holder ~= node then
    others[#others + 1] = index
    others[#others + 1] = holder
  end
end
return { 'OK', now_ms, members, granted, others }
