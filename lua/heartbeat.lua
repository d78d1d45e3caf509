-- heartbeat: extends the leases that are still the worker's, stores progress and checkpoints.
-- A job that a rollback of Redis put back to where it was before this start is taken over again.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] running     redjob:{p}:running        zset
-- KEYS[4] runs        redjob:{p}:runs           hash
-- KEYS[5] attempts    redjob:{p}:attempts       hash
-- KEYS[6] cancels     redjob:{p}:cancels        hash
-- KEYS[7] progress    redjob:{p}:progress       hash
-- KEYS[8] dispatched  redjob:{p}:dispatched     hash
-- KEYS[9] finished    redjob:{p}:finished       hash
-- KEYS[10..] due ready  of each queue, then job of each id
-- ARGV[1] tag         request id
-- ARGV[2] worker
-- ARGV[3] lease_ms
-- ARGV[4] queues      how many queues stand in KEYS
-- ARGV[5..] id queue attempt head progress past  per job: queue counts from 1, head is the first 44
--   bytes of the record, progress and past (JSON of attempts, with a checkpoint) may be ''
-- Returns: OK, seq, durable_seq, now_ms, codes
--   codes: H held, Q held and a cancel is asked for, A adopted after a rollback, L lost
-- Refuses: NOTREADY partition not opened (ask again); REBUILDING (ask again)
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/full
-- @include lib/failed
-- @include lib/intact

local refused = gate()
if refused then return { refused } end
write_when_full()
check_intact(KEYS[3], KEYS[5], KEYS[8], KEYS[9])
local tag, worker = ARGV[1], ARGV[2]
local lease_until = string.format('%.0f', now_ms + tonumber(ARGV[3]))
local queues = tonumber(ARGV[4])
local count = (#ARGV - 4) / 6
local ids = {}
for i = 1, count do ids[i] = ARGV[i * 6 - 1] end
local runs = redis.call('HMGET', KEYS[4], unpack(ids))
local asked = redis.call('HMGET', KEYS[6], unpack(ids))
local codes, leases, lines = {}, {}, {}

-- The places before a start, in the state they had before it: the same record, one attempt fewer.
local function adopt(i, queue, attempt, head, told)
  local id = ids[i]
  local job = KEYS[9 + queues * 2 + i]
  if redis.pcall('GETRANGE', job, 0, 43) ~= head then return false end
  local past = redis.call('HGET', KEYS[5], id)
  local begun = past and tonumber(string.match(past, '^%d+')) or 0
  if begun ~= attempt - 1 then return false end
  local due, ready = KEYS[8 + queue * 2], KEYS[9 + queue * 2]
  local waits = redis.call('HEXISTS', KEYS[8], id) == 1
  local later = score_of(due, id) or score_of(ready, id)
  if not waits and not later then return false end
  redis.call('ZADD', KEYS[3], lease_until, id)
  redis.call('HSET', KEYS[4], id, attempt .. ' ' .. worker)
  redis.call('HDEL', KEYS[8], id)
  redis.pcall('ZREM', due, id)
  redis.pcall('ZREM', ready, id)
  lines[#lines + 1] = id .. ' ' .. string.sub(head, 10, 19) .. ' T ' .. attempt .. told
  return true
end

for i = 1, count do
  local at = i * 6 - 1
  local queue, attempt, head = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local told = ARGV[at + 5] ~= '' and ' 0  ' .. one_line(ARGV[at + 5]) or '' -- the checkpoint outlives Redis too
  local code = 'L'
  if runs[i] == attempt .. ' ' .. worker then
    code = asked[i] and 'Q' or 'H'
    leases[#leases + 1] = lease_until
    leases[#leases + 1] = ids[i]
  elseif not runs[i] and redis.call('HEXISTS', KEYS[9], ids[i]) == 0 and adopt(i, queue, attempt, head, told) then
    code = 'A'
  end
  if code ~= 'L' then
    -- pcall: leases matter more than what people look at
    if ARGV[at + 4] ~= '' then redis.pcall('HSET', KEYS[7], ids[i], ARGV[at + 4]) end
    if ARGV[at + 5] ~= '' then
      redis.call('HSET', KEYS[5], ids[i], (attempt - 1) .. ' ' .. tag .. ' ' .. ARGV[at + 5])
      if code ~= 'A' then
        lines[#lines + 1] = ids[i] .. ' ' .. string.sub(head, 10, 19) .. ' T ' .. attempt .. told
      end
    end
  end
  codes[i] = code
end
if #leases > 0 then redis.call('ZADD', KEYS[3], unpack(leases)) end
if #lines > 0 then journal('heartbeat', tag, lines, 'worker', worker) end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
