-- reschedule: gives a job that is still in due another time.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] queues      redjob:{p}:queues         zset
-- KEYS[4] due         redjob:{p}:due:<queue>    zset
-- KEYS[5] job         redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id
-- ARGV[2] queue
-- ARGV[3] seen        the score that the caller read
-- ARGV[4] run_at_ms   the new one; a past one fires at once
-- Returns: OK, seq, durable_seq, now_ms, code
--   code: S moved, = it has that time already, C it has another time than was seen, A not in due
-- Refuses: NOTREADY partition not opened; REBUILDING try again later
-- @include lib/gate
-- @include lib/now
-- @include lib/journal

local refused = gate()
if refused then return { refused } end
local tag, queue, target = ARGV[1], ARGV[2], ARGV[4]
local id = string.sub(KEYS[5], -36)
local score = redis.call('ZSCORE', KEYS[4], id)
local code = 'S'
if not score then code = 'A'
elseif tonumber(score) == tonumber(target) then code = '='
elseif tonumber(score) ~= tonumber(ARGV[3]) then code = 'C' end
if code == 'S' then
  redis.call('ZADD', KEYS[4], target, id)
  redis.call('ZADD', KEYS[3], 'LT', target, queue)
  journal('reschedule', tag, { id .. ' ' .. redis.call('GETRANGE', KEYS[5], 9, 18) .. ' S 0 ' .. target ..
    ' ' .. queue })
end
return { 'OK', seq, durable_seq, now_ms, code }
