-- take: a worker claims and starts up to n jobs of one partition, queue by queue in its order.
-- Lease and start are one step, entries are settled at once (XACK + XDEL), and only an entry that
-- `dispatched` names counts: what cancel or requeue left behind is settled without a start. As nothing
-- stays pending, all workers read as one consumer, `take`: restarts leave no dead consumers behind.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] dispatched  redjob:{p}:dispatched     hash
-- KEYS[4] running     redjob:{p}:running        zset
-- KEYS[5] runs        redjob:{p}:runs           hash
-- KEYS[6] attempts    redjob:{p}:attempts       hash
-- KEYS[7] taken       redjob:{p}:taken:<worker> string
-- KEYS[8..] stream flow ready bell  of each queue
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, as read when the connection was made
-- ARGV[3] again       1 when an earlier try of this request may have got through, else 0
-- ARGV[4] worker
-- ARGV[5] n           at most 500
-- ARGV[6] lease_ms
-- Returns: OK, seq, durable_seq, now_ms, hint, {stale id, ...}, {id, attempts, doc, ...}
--   hint: 1 when a queue has ready jobs and room for them (call release); attempts: '' or the field
--   as it was before this start; doc is '' in the answer to a repeated request (read the records)
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/flow

local BYTES = 1048576 -- of a reply; a first small step tells how large the records are
local TAKEN_TTL_MS = '120000'
local refused = gate(ARGV[2])
if refused then return { refused } end
local tag, worker, left = ARGV[1], ARGV[4], tonumber(ARGV[5])
redis.pcall('ZREM', KEYS[4], '') -- lets the writes below through at maxmemory

if ARGV[3] == '1' then
  local before = redis.call('GET', KEYS[7])
  if before and string.sub(before, 1, #tag) == tag then
    local ids, mine = {}, {}
    for id in string.gmatch(string.sub(before, #tag + 1), '%S+') do ids[#ids + 1] = id end
    if #ids > 0 then
      local runs = redis.call('HMGET', KEYS[5], unpack(ids))
      local past = redis.call('HMGET', KEYS[6], unpack(ids))
      for i = 1, #ids do
        if runs[i] and string.match(runs[i], ' (.*)$') == worker then
          mine[#mine + 1] = ids[i]
          mine[#mine + 1] = past[i] or ''
          mine[#mine + 1] = ''
        end
      end
    end
    return { 'OK', seq, durable_seq, now_ms, 0, {}, mine }
  end
end

local have_past = redis.call('EXISTS', KEYS[6]) == 1
local lease_until = string.format('%.0f', now_ms + tonumber(ARGV[6]))
local first_run = '1 ' .. worker
local stale, out, started, lines = {}, {}, {}, {}
local hint, bytes, largest = 0, 0, nil

local function start(ids, entries, docs, count)
  local named = redis.call('HMGET', KEYS[3], unpack(ids))
  local past = have_past and redis.call('HMGET', KEYS[6], unpack(ids)) or {}
  local leases, runs, mine = {}, {}, {}
  local sub, total, n = string.sub, #started, 0
  for i = 1, count do
    local id = ids[i]
    if named[i] == entries[i] then
      local before, attempt, run = past[i] or '', 1, first_run
      if before ~= '' then
        attempt = tonumber(string.match(before, '^%d+')) + 1
        run = attempt .. ' ' .. worker
      end
      n = n + 1
      mine[n] = id
      leases[n * 2 - 1], leases[n * 2] = lease_until, id
      runs[n * 2 - 1], runs[n * 2] = id, run
      local at = (total + n) * 3
      out[at - 2], out[at - 1], out[at] = id, before, docs[i]
      started[total + n] = id
      lines[total + n] = id .. ' ' .. sub(docs[i], 10, 19) .. ' T ' .. attempt
    else
      stale[#stale + 1] = id
    end
  end
  if n > 0 then
    redis.call('ZADD', KEYS[4], unpack(leases))
    redis.call('HSET', KEYS[5], unpack(runs))
    redis.call('HDEL', KEYS[3], unpack(mine))
  end
end

local function step(stream, count)
  local read = redis.pcall('XREADGROUP', 'GROUP', 'workers', 'take', 'COUNT', count, 'STREAMS', stream, '>')
  if not read then return 0 end
  if read.err then
    if string.find(read.err, 'NOGROUP', 1, true) and redis.call('EXISTS', stream) == 1 then
      redis.pcall('XGROUP', 'CREATE', stream, 'workers', '0') -- lost with the stream; the next take reads
    end
    return 0
  end
  local ids, entries, docs, all = {}, {}, {}, {}
  local found, n = read[1][2], 0
  for i = 1, #found do
    local entry, fields = found[i][1], found[i][2]
    all[i] = entry
    if fields and fields[1] == 'id' and fields[3] == 'doc' then -- anything else is not ours: settled
      local size = #fields[4]
      n = n + 1
      ids[n], entries[n], docs[n] = fields[2], entry, fields[4]
      bytes = bytes + size
      if not largest or size > largest then largest = size end
    end
  end
  if n > 0 then start(ids, entries, docs, n) end
  redis.call('XACK', stream, 'workers', unpack(all))
  redis.call('XDEL', stream, unpack(all))
  return #all
end

for k = 8, #KEYS, 4 do
  local stream, flow_key, ready, bell = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  if left > 0 and bytes < BYTES and redis.call('HEXISTS', flow_key, 'paused') == 0 then
    local total = 0
    while left > 0 and bytes < BYTES do
      local count = math.min(left, largest and math.max(1, math.floor((BYTES - bytes) / largest)) or 4, 100)
      local got = step(stream, count)
      total = total + got
      left = left - got
      if got < count then redis.call('DEL', bell) break end -- drained: no token may wake anybody for it
    end
    if total > 0 then redis.call('HINCRBY', flow_key, 'depth', -total) end
    if redis.call('ZCARD', ready) > 0 and read_flow(flow_key).room > 0 then hint = 1 end
  end
end
if #started > 0 then
  redis.call('SET', KEYS[7], tag .. ' ' .. table.concat(started, ' '), 'PX', TAKEN_TTL_MS)
  journal('take', tag, lines, 'worker', worker)
end
return { 'OK', seq, durable_seq, now_ms, hint, stale, out }
