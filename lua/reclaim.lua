-- reclaim: the sweeper ends attempts whose lease ran out: due again with crash backoff, or dead.
-- It does nothing in the first lease time after a silence of its own or a restart of the server, so
-- that live workers can be heard first. Called with no job it only says that the sweeper is there.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] running     redjob:{p}:running        zset
-- KEYS[4] runs        redjob:{p}:runs           hash
-- KEYS[5] attempts    redjob:{p}:attempts       hash
-- KEYS[6] finished    redjob:{p}:finished       hash
-- KEYS[7] cancels     redjob:{p}:cancels        hash
-- KEYS[8] progress    redjob:{p}:progress       hash
-- KEYS[9] queues      redjob:{p}:queues         zset
-- KEYS[10] done       redjob:{p}:done           stream
-- KEYS[11] waiters    redjob:{p}:waiters        string
-- KEYS[12..] due dead  of each queue, then job result of each id
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, as read when the connection was made
-- ARGV[3] lease_ms    the grace after a silence
-- ARGV[4] queues      how many queues stand in KEYS; their names follow
-- ARGV[5..] queue     names, then per job: outcome queue run head number data stub, as in finish;
--   outcome R due again or F dead; run is the `<attempt> <worker>` that was read ('' if there was none)
-- Returns: OK, seq, durable_seq, now_ms, codes; or GRACE, until_ms
--   codes: M moved, K cancelled instead, L the lease lives or has changed hands, N no record, B damaged key
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING;
--   GRACE workers are given time to be heard
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/full
-- @include lib/failed
-- @include lib/leave
-- @include lib/move
-- @include lib/grace
-- @include lib/intact

local refused = gate(ARGV[2])
if refused then return { refused } end
write_when_full()
local until_ms = grace(ARGV[3])
if until_ms > now_ms then return { 'GRACE', until_ms } end

local tag, queues = ARGV[1], tonumber(ARGV[4])
local first, jobs_at = 4 + queues, 11 + queues * 2 -- ARGV and KEYS before the first job
if #ARGV > first then check_intact(KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]) end
local codes, left, ended, states, lines = {}, {}, {}, {}, {}
local places = {}
for q = 1, queues do
  places[q] = { due = KEYS[10 + q * 2], dead = KEYS[11 + q * 2], queue = ARGV[4 + q], queues = KEYS[9],
    attempts = KEYS[5] }
end

local function end_cancelled(id, job, attempt, stub)
  redis.call('HSET', KEYS[6], id, tombstone('K', attempt, tag))
  if stub == '' or not drop_record(job, stub) then redis.call('UNLINK', job) end
  redis.call('HDEL', KEYS[5], id)
  ended[#ended + 1], states[#states + 1] = id, 'K'
  return ' K ' .. attempt
end

local function move(id, job, result, outcome, queue, run, head, number, data, stub)
  local lease = redis.call('ZSCORE', KEYS[3], id)
  if (redis.call('HGET', KEYS[4], id) or '') ~= run then return 'L' end
  if lease and tonumber(lease) > now_ms then return 'L' end
  if not lease and run == '' then return 'L' end -- neither half is there: not running
  if redis.call('EXISTS', job) == 0 then return 'N' end
  local attempt = string.match(run, '^%d+') -- else the one after those that have ended
    or string.match(redis.call('HGET', KEYS[5], id) or '0', '^%d+') + 1
  local code, at = 'M', places[tonumber(queue)]
  local rest
  if outcome == 'R' and redis.call('HEXISTS', KEYS[7], id) == 1 then
    code, rest = 'K', end_cancelled(id, job, attempt, stub)
  elseif outcome == 'R' then
    rest = to_due(at, id, now_ms + tonumber(number), attempt, tag, data)
  else
    rest = to_dead(at, id, attempt, tag, data, result, number)
    if rest then ended[#ended + 1], states[#states + 1] = id, 'F' end
  end
  if not rest then return 'B' end
  lines[#lines + 1] = id .. ' ' .. string.sub(head, 10, 19) .. rest
  left[#left + 1] = id
  return code
end

for i = 1, (#ARGV - first) / 7 do
  local job = KEYS[jobs_at + i * 2 - 1]
  codes[i] = move(string.sub(job, -36), job, KEYS[jobs_at + i * 2], unpack(ARGV, first + i * 7 - 6, first + i * 7))
end
if #lines > 0 then
  announce(KEYS[11], KEYS[10], ended, states)
  journal('reclaim', tag, lines)
  redis.call('ZREM', KEYS[3], unpack(left))
  redis.call('HDEL', KEYS[4], unpack(left))
  redis.call('HDEL', KEYS[7], unpack(left))
  redis.pcall('HDEL', KEYS[8], unpack(left)) -- pcall: only people look at progress
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
