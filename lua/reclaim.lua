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
-- @include lib/failed
-- @include lib/leave

local SILENCE_MS = 10000
local refused = gate(ARGV[2])
if refused then return { refused } end
redis.pcall('ZREM', KEYS[3], '') -- lets the writes below through at maxmemory
local seen = redis.call('HMGET', KEYS[1], 'seen_ms', 'grace_until')
local grace_until = tonumber(seen[2]) or 0
if not seen[1] or now_ms - tonumber(seen[1]) > SILENCE_MS then
  grace_until = now_ms + tonumber(ARGV[3])
  redis.call('HSET', KEYS[1], 'grace_until', string.format('%.0f', grace_until))
end
redis.call('HSET', KEYS[1], 'seen_ms', string.format('%.0f', now_ms))
if grace_until > now_ms then return { 'GRACE', grace_until } end

local tag, queues = ARGV[1], tonumber(ARGV[4])
local first, jobs_at = 4 + queues, 11 + queues * 2
local codes, left, ended, states, lines = {}, {}, {}, {}, {}

local function move(id, job, result, at)
  local outcome, queue, run, head = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  local number, data, stub = ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  local lease = redis.call('ZSCORE', KEYS[3], id)
  if (redis.call('HGET', KEYS[4], id) or '') ~= run then return 'L' end
  if lease and tonumber(lease) > now_ms then return 'L' end
  if not lease and run == '' then return 'L' end -- neither half is there: not running
  if redis.call('EXISTS', job) == 0 then return 'N' end
  local attempt = string.match(run, '^%d+') -- else the one after those that have ended
    or string.match(redis.call('HGET', KEYS[5], id) or '0', '^%d+') + 1
  local line = id .. ' ' .. string.sub(head, 10, 19)
  local code = 'M'
  if outcome == 'R' and redis.call('HEXISTS', KEYS[7], id) == 1 then
    redis.call('HSET', KEYS[6], id, tombstone('K', attempt, tag))
    line = line .. ' K ' .. attempt
    ended[#ended + 1], states[#states + 1] = id, 'K'
    code = 'K'
  elseif outcome == 'R' then
    local run_at = now_ms + tonumber(number)
    if failed(redis.pcall('ZADD', KEYS[10 + queue * 2], run_at, id)) then return 'B' end
    redis.call('ZADD', KEYS[9], 'LT', run_at, ARGV[4 + queue])
    redis.call('HSET', KEYS[5], id, attempt .. ' ' .. tag .. ' ' .. data)
    line = line .. ' S ' .. attempt .. ' ' .. string.format('%.0f', run_at) .. ' ' .. ARGV[4 + queue] ..
      ' ' .. data
  else
    local past, verdict = string.match(data, '^([^\n]*)\n(.*)$')
    if failed(redis.pcall('ZADD', KEYS[11 + queue * 2], now_ms, id)) then return 'B' end
    redis.call('HSET', KEYS[5], id, attempt .. ' ' .. tag .. ' ' .. past)
    if number ~= '0' then redis.call('SET', result, verdict, 'PX', number) end
    line = line .. ' F ' .. attempt .. ' 0 ' .. ARGV[4 + queue] .. ' ' .. past
    ended[#ended + 1], states[#states + 1] = id, 'F'
  end
  if code == 'K' then
    if stub == '' or not drop_record(job, stub) then redis.call('UNLINK', job) end
    redis.call('HDEL', KEYS[5], id)
  end
  lines[#lines + 1] = line
  left[#left + 1] = id
  return code
end

for i = 1, (#ARGV - first) / 7 do
  local job = KEYS[jobs_at + i * 2 - 1]
  codes[i] = move(string.sub(job, -36), job, KEYS[jobs_at + i * 2], first + (i - 1) * 7)
end
if #lines > 0 then
  announce(KEYS[11], KEYS[10], ended, states)
  journal('reclaim', tag, lines)
  redis.call('ZREM', KEYS[3], unpack(left))
  redis.call('HDEL', KEYS[4], unpack(left))
  redis.call('HDEL', KEYS[7], unpack(left))
  redis.call('HDEL', KEYS[8], unpack(left))
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
