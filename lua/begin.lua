-- begin: a consumer in any language starts jobs of one queue whose entries it read with XREADGROUP.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] dispatched  redjob:{p}:dispatched     hash
-- KEYS[4] running     redjob:{p}:running        zset
-- KEYS[5] runs        redjob:{p}:runs           hash
-- KEYS[6] attempts    redjob:{p}:attempts       hash
-- KEYS[7] flow        redjob:{p}:flow:<queue>   hash
-- KEYS[8] stream      redjob:{p}:stream:<queue> stream
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, or '' for a consumer that does not follow it
-- ARGV[3] worker      a name of the consumer's own, used again in heartbeat and finish
-- ARGV[4] lease_ms
-- ARGV[5..] entry id  a pair per job: the stream entry that this consumer was given, and its field id
-- Returns: OK, seq, durable_seq, now_ms, codes, {attempt, ...}
--   codes: T started (its attempt follows in order), = mine already (repeat; attempt follows),
--   A not to be run (cancelled, requeued or begun by another: the entry is settled)
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/intact

local asker = ARGV[2]
if asker == '' then asker = nil end
local refused = gate(asker)
if refused then return { refused } end
redis.call('XDEL', KEYS[2], '0-1') -- deletes nothing and lets the writes below through at maxmemory
check_intact(KEYS[4], KEYS[3], KEYS[5], KEYS[6])
local worker = ARGV[3]
local lease_until = string.format('%.0f', now_ms + tonumber(ARGV[4]))
local codes, attempts, lines, settled = {}, {}, {}, {}

-- id is the caller's word for an entry that is gone; one that is still there speaks for itself.
local function start(entry, id)
  local found = redis.call('XRANGE', KEYS[8], entry, entry)[1]
  local doc
  if found then
    settled[#settled + 1] = entry
    local fields = found[2]
    if fields[1] ~= 'id' or fields[3] ~= 'doc' then return 'A' end
    id, doc = fields[2], fields[4]
  end
  if doc and redis.call('HGET', KEYS[3], id) == entry then
    local past = redis.call('HGET', KEYS[6], id)
    local attempt = past and string.match(past, '^%d+') + 1 or 1
    redis.call('ZADD', KEYS[4], lease_until, id)
    redis.call('HSET', KEYS[5], id, attempt .. ' ' .. worker)
    redis.call('HDEL', KEYS[3], id)
    lines[#lines + 1] = id .. ' ' .. string.sub(doc, 10, 19) .. ' T ' .. attempt
    attempts[#attempts + 1] = attempt
    return 'T'
  end
  local attempt, name = string.match(redis.call('HGET', KEYS[5], id) or '', '^(%d+) (.*)$')
  if name ~= worker then return 'A' end
  attempts[#attempts + 1] = tonumber(attempt)
  return '='
end

for i = 5, #ARGV, 2 do codes[#codes + 1] = start(ARGV[i], ARGV[i + 1]) end
if #settled > 0 then
  redis.call('XACK', KEYS[8], 'workers', unpack(settled))
  local gone = redis.call('XDEL', KEYS[8], unpack(settled))
  if gone > 0 then redis.pcall('HINCRBY', KEYS[7], 'depth', -gone) end -- -0 is no integer to Redis 7
end
if #lines > 0 then journal('take', ARGV[1], lines, 'worker', worker) end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes), attempts }
