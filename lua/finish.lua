-- finish: a worker ends attempts: it decides the outcome, the script checks the lease and moves.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] running     redjob:{p}:running        zset
-- KEYS[4] runs        redjob:{p}:runs           hash
-- KEYS[5] attempts    redjob:{p}:attempts       hash
-- KEYS[6] finished    redjob:{p}:finished       hash
-- KEYS[7] cancels     redjob:{p}:cancels        hash
-- KEYS[8] progress    redjob:{p}:progress       hash
-- KEYS[9] dispatched  redjob:{p}:dispatched     hash
-- KEYS[10] queues     redjob:{p}:queues         zset
-- KEYS[11] done       redjob:{p}:done           stream
-- KEYS[12] waiters    redjob:{p}:waiters        string
-- KEYS[13..] due ready dead flow stream bell  of each queue, then job result of each id
-- ARGV[1] tag         request id
-- ARGV[2] worker
-- ARGV[3] queues      how many queues stand in KEYS; their names follow
-- ARGV[4..] queue     names, then per job: outcome queue attempt head number data stub
--   outcome C complete, R retry, Z snooze, B hand back, F dead, X expire · queue counts from 1 ·
--   head is the first 44 bytes of the record · number: result ttl ms (C, F, X; 0 none) or delay ms
--   (R, Z) · data: result JSON (C, X), past JSON (others; F: past, a line feed, result JSON) ·
--   stub '' or '<ttl ms> <JSON>'
-- Returns: OK, seq, durable_seq, now_ms, codes
--   codes: M moved as asked, = repeat of this request, V accepted although late, K cancelled instead
--   (a cancel was asked), L lost (another attempt owns or ended the job), N in no place (ask), B damaged key
-- Refuses: NOTREADY partition not opened (ask again); REBUILDING (ask again)
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/failed
-- @include lib/flow
-- @include lib/dispatch
-- @include lib/leave

local refused = gate()
if refused then return { refused } end
redis.pcall('ZREM', KEYS[3], '') -- lets the writes below through at maxmemory
local tag, worker, queues = ARGV[1], ARGV[2], tonumber(ARGV[3])
local first = 3 + queues -- ARGV before the first job
local count = (#ARGV - first) / 7
local jobs_at = 12 + queues * 6
local ids, codes = {}, {}
for i = 1, count do ids[i] = string.sub(KEYS[jobs_at + i * 2 - 1], -36) end
local runs = redis.call('HMGET', KEYS[4], unpack(ids))
local asked = redis.call('EXISTS', KEYS[7]) == 1 and redis.call('HMGET', KEYS[7], unpack(ids)) or {}
local left, ended, unlink, graves, states, gone, lines = {}, {}, {}, {}, {}, {}, {}

local function queue_key(queue, which) return KEYS[12 + (queue - 1) * 6 + which] end

-- Not mine any more: a repeat, or a success of an older attempt that counts because nothing newer
-- runs or has ended (a crash verdict is such a mistake too).
local function late(i, outcome, queue, attempt, head)
  local grave = redis.call('HGET', KEYS[6], ids[i])
  if grave then
    if string.sub(grave, -#tag) == tag then return '=' end
    return 'L'
  end
  local past = redis.call('HGET', KEYS[5], ids[i])
  if past and string.match(past, '^%d+ (%S+)') == tag then return '=' end
  if runs[i] then return 'L' end
  local id, job = ids[i], KEYS[jobs_at + i * 2 - 1]
  if redis.call('EXISTS', job) == 0 then return 'N' end
  if outcome ~= 'C' or redis.call('GETRANGE', job, 0, 43) ~= head then return 'L' end
  local begun = past and tonumber(string.match(past, '^%d+')) or 0
  if begun < attempt - 1 then return 'L' end
  local due, ready, dead = queue_key(queue, 1), queue_key(queue, 2), queue_key(queue, 3)
  if redis.call('ZSCORE', dead, id) then
    if not string.find(past or '', '"dead":"crash"', 1, true) then return 'L' end
  elseif redis.call('HEXISTS', KEYS[9], id) == 0 and not redis.call('ZSCORE', due, id)
    and not redis.call('ZSCORE', ready, id) then
    return 'N'
  end
  redis.call('ZREM', due, id)
  redis.call('ZREM', ready, id)
  redis.call('ZREM', dead, id)
  redis.call('HDEL', KEYS[9], id) -- its entry stays as one that nothing names; take settles it
  return 'V'
end

-- Most jobs of a call end alike: what their tombstones and lines share is made once.
local endings = {}
local function ending(state, attempt, home)
  local key = state .. attempt .. home
  local found = endings[key]
  if not found then
    found = { tombstone(state, attempt, tag), ' ' .. home .. ' ' .. state .. ' ' .. attempt }
    endings[key] = found
  end
  return found
end

local function bury(i, state, attempt, head, stub)
  local id, job, n = ids[i], KEYS[jobs_at + i * 2 - 1], #gone + 1
  local same = ending(state, attempt, string.sub(head, 10, 19))
  graves[n * 2 - 1], graves[n * 2] = id, same[1]
  ended[#ended + 1] = id
  states[#states + 1] = state
  gone[n] = id
  if stub == '' or not drop_record(job, stub) then unlink[#unlink + 1] = job end
  lines[#lines + 1] = id .. same[2]
end

-- A retry, snooze or hand-back. The attempts field carries this request's tag: a repeat finds it.
local function go_on(i, outcome, queue, attempt, head, number, data)
  local id, name = ids[i], ARGV[3 + queue]
  local past = attempt .. ' ' .. tag .. ' ' .. data
  local line = id .. ' ' .. string.sub(head, 10, 19)
  if outcome == 'B' then
    local doc = redis.call('GET', KEYS[jobs_at + i * 2 - 1])
    if not doc then return 'N' end
    local flow = read_flow(queue_key(queue, 4))
    if not dispatch(queue_key(queue, 5), KEYS[9], flow, queue_key(queue, 6), { id }, { doc }) then return 'B' end
    line = line .. ' D ' .. attempt
  else
    local run_at = now_ms + math.max(0, tonumber(number))
    if failed(redis.pcall('ZADD', queue_key(queue, 1), run_at, id)) then return 'B' end
    redis.call('ZADD', KEYS[10], 'LT', run_at, name)
    line = line .. ' S ' .. attempt .. ' ' .. string.format('%.0f', run_at) .. ' ' .. name .. ' ' .. data
  end
  redis.call('HSET', KEYS[5], id, past)
  lines[#lines + 1] = line
  left[#left + 1] = id
  return 'M'
end

local function die(i, queue, attempt, head, number, data)
  local past, result = string.match(data, '^([^\n]*)\n(.*)$')
  if failed(redis.pcall('ZADD', queue_key(queue, 3), now_ms, ids[i])) then return 'B' end
  redis.call('HSET', KEYS[5], ids[i], attempt .. ' ' .. tag .. ' ' .. past)
  if number ~= '0' then redis.call('SET', KEYS[jobs_at + i * 2], result, 'PX', number) end
  lines[#lines + 1] = ids[i] .. ' ' .. string.sub(head, 10, 19) .. ' F ' .. attempt .. ' 0 ' ..
    ARGV[3 + queue] .. ' ' .. past
  left[#left + 1] = ids[i]
  ended[#ended + 1] = ids[i]
  states[#states + 1] = 'F'
  return 'M'
end

for i = 1, count do
  local at = first + (i - 1) * 7
  local outcome, queue, attempt = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local head, number, data, stub = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  local code = 'M'
  if runs[i] ~= attempt .. ' ' .. worker then
    code = late(i, outcome, queue, tonumber(attempt), head)
  end
  if (code == 'M' or code == 'V') and (outcome == 'C' or outcome == 'X') then
    bury(i, outcome, attempt, head, stub)
    if number ~= '0' then redis.call('SET', KEYS[jobs_at + i * 2], data, 'PX', number) end
  elseif code == 'M' and outcome == 'F' then
    code = die(i, queue, attempt, head, number, data)
  elseif code == 'M' and asked[i] then
    bury(i, 'K', attempt, head, stub)
    code = 'K'
  elseif code == 'M' then
    code = go_on(i, outcome, queue, attempt, head, number, data)
  end
  codes[i] = code
end

if #graves > 0 then redis.call('HSET', KEYS[6], unpack(graves)) end
if #lines > 0 then
  announce(KEYS[12], KEYS[11], ended, states)
  journal('finish', tag, lines, 'worker', worker)
  if #unlink > 0 then redis.call('UNLINK', unpack(unlink)) end
  if #gone > 0 and redis.call('EXISTS', KEYS[5]) == 1 then redis.call('HDEL', KEYS[5], unpack(gone)) end
  local n = #left
  for i = 1, #gone do left[n + i] = gone[i] end
  redis.call('ZREM', KEYS[3], unpack(left))
  redis.call('HDEL', KEYS[4], unpack(left))
  if redis.call('EXISTS', KEYS[7], KEYS[8]) > 0 then
    redis.call('HDEL', KEYS[7], unpack(left))
    redis.call('HDEL', KEYS[8], unpack(left))
  end
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
