-- reschedule: gives a job that is still in due another time.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] queues      redjob:{p}:queues         zset
-- KEYS[4] due         redjob:{p}:due:<queue>    zset
-- KEYS[5] attempts    redjob:{p}:attempts       hash
-- KEYS[6] job         redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id; one that begins with w gets a journal entry in any case
-- ARGV[2] queue
-- ARGV[3] seen        the score that the caller read
-- ARGV[4] run_at_ms   the new one; a past one fires at once
-- Returns: OK, seq, durable_seq, now_ms, code
--   code: S moved, = it has that time already, C it has another time than was seen, A not in due,
--   N no record
-- Refuses: NOTREADY partition not opened; REBUILDING try again later
-- @include lib/gate
-- @include lib/now
-- @include lib/journal

local refused = gate()
if refused then return { refused } end
check_journal()
local tag, queue, target = ARGV[1], ARGV[2], ARGV[4]
local id = string.sub(KEYS[6], -36)
local score = redis.call('ZSCORE', KEYS[4], id)
local home = redis.call('GETRANGE', KEYS[6], 9, 18)
local code = 'S'
if not score then code = 'A'
elseif tonumber(score) == tonumber(target) then code = '='
elseif tonumber(score) ~= tonumber(ARGV[3]) then code = 'C'
elseif home == '' then code = 'N' end
if code == 'S' then
  local attempt = string.match(redis.call('HGET', KEYS[5], id) or '0', '^%d+')
  redis.call('ZADD', KEYS[3], 'LT', target, queue)
  redis.call('ZADD', KEYS[4], target, id)
  journal('reschedule', tag, { id .. ' ' .. home .. ' S ' .. attempt .. ' ' .. target .. ' ' .. queue })
else
  journal_waited(tag)
end
return { 'OK', seq, durable_seq, now_ms, code }
