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
-- @include lib/full
-- @include lib/failed
-- @include lib/flow
-- @include lib/dispatch
-- @include lib/leave
-- @include lib/move
-- @include lib/late
-- @include lib/hand_back
-- @include lib/intact

local OUTCOMES = { C = true, R = true, Z = true, B = true, F = true, X = true }
local refused = gate()
if refused then return { refused } end
local tag, worker, queues = ARGV[1], ARGV[2], tonumber(ARGV[3])
local first, jobs_at = 3 + queues, 12 + queues * 6 -- ARGV and KEYS before the first job
local ids, codes, places = {}, {}, {}
for i = 1, (#ARGV - first) / 7 do
  ids[i] = string.sub(KEYS[jobs_at + i * 2 - 1], -36)
  local outcome = ARGV[first + i * 7 - 6]
  if not OUTCOMES[outcome] then return redis.error_reply('ERR finish knows no outcome ' .. outcome) end
end
for q = 1, queues do
  local k = 6 + q * 6
  places[q] = { due = KEYS[k + 1], ready = KEYS[k + 2], dead = KEYS[k + 3], flow = KEYS[k + 4],
    stream = KEYS[k + 5], bell = KEYS[k + 6], queue = ARGV[3 + q], queues = KEYS[10], attempts = KEYS[5],
    finished = KEYS[6], dispatched = KEYS[9] }
end
write_when_full()
check_intact(KEYS[3], KEYS[5], KEYS[6], KEYS[9])
local runs = redis.call('HMGET', KEYS[4], unpack(ids))
local cancels = redis.call('HLEN', KEYS[7]) > 0
local asked = cancels and redis.call('HMGET', KEYS[7], unpack(ids)) or {}
local waited = redis.call('EXISTS', KEYS[12]) == 1
local moved, buried, late, graves, ended, states, unlink, lines = {}, {}, {}, {}, {}, {}, {}, {}

local function bury(id, job, state, attempt, stub)
  local same, n = ending(state, attempt, tag), #buried + 1
  graves[n * 2 - 1], graves[n * 2], buried[n] = id, same.grave, id
  if waited then ended[#ended + 1], states[#states + 1] = id, state end
  if stub == '' or not drop_record(job, stub) then unlink[#unlink + 1] = job end
  return same.line
end

local n, sub = 0, string.sub
for i = 1, #ids do
  local at = first + (i - 1) * 7
  local outcome, attempt, head, number = ARGV[at + 1], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local data, stub, place = ARGV[at + 6], ARGV[at + 7], places[tonumber(ARGV[at + 2])]
  local id, job, result = ids[i], KEYS[jobs_at + i * 2 - 1], KEYS[jobs_at + i * 2]
  local code, rest = 'M', nil
  if runs[i] ~= attempt .. ' ' .. worker then
    code = judge_late(place, id, runs[i], job, outcome, attempt, head, tag)
  end
  if (code == 'M' or code == 'V') and (outcome == 'C' or outcome == 'X') then
    if number ~= '0' then redis.call('SET', result, data, 'PX', number)
    elseif code == 'V' then unlink[#unlink + 1] = result end -- a crash verdict may stand there
    if code == 'V' then late[#late + 1] = { place, id } end
    rest = bury(id, job, outcome, attempt, stub)
  elseif code == 'M' and outcome == 'F' then
    rest = to_dead(place, id, attempt, tag, data, result, number)
    if rest then ended[#ended + 1], states[#states + 1] = id, 'F' end
  elseif code == 'M' and asked[i] then
    code, rest = 'K', bury(id, job, 'K', attempt, stub)
  elseif code == 'M' and outcome == 'B' then
    rest, code = hand_back(place, id, job, attempt, tag, data)
  elseif code == 'M' then
    rest = to_due(place, id, now_ms + math.max(0, tonumber(number)), attempt, tag, data)
  end
  if rest then
    n = n + 1
    lines[n], moved[n] = id .. ' ' .. sub(head, 10, 19) .. rest, id
  elseif code == 'M' then
    code = 'B'
  end
  codes[i] = code
end

if n > 0 then
  if #graves > 0 then redis.call('HSET', KEYS[6], unpack(graves)) end
  if waited then announce(KEYS[12], KEYS[11], ended, states) end
  journal('finish', tag, lines, 'worker', worker)
  for _, old in ipairs(late) do -- its entry stays as one that nothing names; take settles it
    for _, place in ipairs({ 'due', 'ready', 'dead' }) do redis.pcall('ZREM', old[1][place], old[2]) end
    redis.call('HDEL', KEYS[9], old[2])
  end
  if #unlink > 0 then redis.call('UNLINK', unpack(unlink)) end
  if #buried > 0 and redis.call('EXISTS', KEYS[5]) == 1 then redis.call('HDEL', KEYS[5], unpack(buried)) end
  redis.call('ZREM', KEYS[3], unpack(moved))
  redis.call('HDEL', KEYS[4], unpack(moved))
  if cancels then redis.call('HDEL', KEYS[7], unpack(moved)) end
  if redis.call('EXISTS', KEYS[8]) == 1 then redis.pcall('HDEL', KEYS[8], unpack(moved)) end
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
