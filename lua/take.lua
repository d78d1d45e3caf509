-- take: a worker claims and starts up to n jobs of one partition, queue by queue in its order.
-- Lease and start are one step, entries are deleted at once, and only an entry that
-- `dispatched` names counts: what cancel or requeue left behind is settled without a start.
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
-- @include lib/full
-- @include lib/failed
-- @include lib/flow
-- @include lib/entries
-- @include lib/taken

local BYTES = 1048576 -- of a reply; a first small step tells how large the records are
local STEP = 128 -- entries, as later ones may be larger
local refused = gate(ARGV[2])
if refused then return { refused } end
write_when_full()
local tag, worker, left = ARGV[1], ARGV[4], tonumber(ARGV[5])
local again = ARGV[3] == '1' and recall(KEYS[7], tag, worker, KEYS[5], KEYS[6])
if again then return { 'OK', seq, durable_seq, now_ms, 0, {}, again } end

-- An entry that was read and not moved would wait for ever, as nothing is kept pending: a damaged place must
-- stop the call here, before it reads.
redis.call('HLEN', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('HLEN', KEYS[5])
local have_past = redis.call('HLEN', KEYS[6]) > 0
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
        attempt = tonumber(string.match(before, '^%d+') or 0) + 1
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
    elseif #id == 36 and string.find(id, '^[%x-]+$') then
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
  local all, n, ids, entries, docs, size, most = read_entries(stream, count)
  if not all then return 0 end
  bytes = bytes + size
  if not largest or most > largest then largest = most end
  if n > 0 then start(ids, entries, docs, n) end
  redis.call('XDEL', stream, unpack(all))
  return #all
end

for k = 8, #KEYS, 4 do
  local stream, flow_key, ready, bell = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  -- pcall: a queue with a damaged key must not stop the others, whose jobs have begun by now
  if left > 0 and bytes < BYTES and redis.pcall('HEXISTS', flow_key, 'paused') == 0 then
    local total = 0
    while left > 0 and bytes < BYTES do
      local count = math.min(left, largest and math.max(1, math.floor((BYTES - bytes) / largest)) or 4, STEP)
      local got = step(stream, count)
      total = total + got
      left = left - got
      if got < count then redis.call('DEL', bell) break end -- drained: no token may wake anybody for it
    end
    if total > 0 then redis.pcall('HINCRBY', flow_key, 'depth', -total) end
    if has_waiting(ready) and read_flow(flow_key).room > 0 then hint = 1 end
  end
end
if #started > 0 then
  remember(KEYS[7], tag, started)
  journal('take', tag, lines, 'worker', worker)
end
return { 'OK', seq, durable_seq, now_ms, hint, stale, out }
