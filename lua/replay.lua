-- replay: sends a dead job back to due; its attempt number goes on, failures and crashes start anew.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] queues      redjob:{p}:queues         zset
-- KEYS[4] due         redjob:{p}:due:<queue>    zset
-- KEYS[5] dead        redjob:{p}:dead:<queue>   zset
-- KEYS[6] attempts    redjob:{p}:attempts       hash
-- KEYS[7] job         redjob:{p}:job:<id>       string
-- KEYS[8] result      redjob:{p}:result:<id>    string
-- ARGV[1] tag         request id; one that begins with w gets a journal entry in any case
-- ARGV[2] queue
-- ARGV[3] seen        the time of death that the caller read
-- ARGV[4] past        JSON for attempts, with failures and crashes cleared
-- Returns: OK, seq, durable_seq, now_ms, code
--   code: S due now, = repeat of this request, C it died again meanwhile, A not dead, N no record
-- Refuses: NOTREADY partition not opened; REBUILDING try again later
-- @include lib/gate
-- @include lib/now
-- @include lib/journal

local refused = gate()
if refused then return { refused } end
check_journal()
local tag, queue = ARGV[1], ARGV[2]
local id = string.sub(KEYS[7], -36)
redis.call('ZCARD', KEYS[4])
local home = redis.call('GETRANGE', KEYS[7], 9, 18)
local died = redis.call('ZSCORE', KEYS[5], id)
local past = redis.call('HGET', KEYS[6], id) or '0  '
local attempt, changed = string.match(past, '^(%d+) (%S*)')
local code = 'S'
if not died then
  if changed == tag then code = '=' else code = 'A' end
elseif tonumber(died) ~= tonumber(ARGV[3]) then code = 'C'
elseif home == '' then code = 'N' end
if code == 'S' then
  redis.call('ZADD', KEYS[3], 'LT', now_ms, queue)
  redis.call('ZADD', KEYS[4], now_ms, id)
  redis.call('HSET', KEYS[6], id, attempt .. ' ' .. tag .. ' ' .. ARGV[4])
  journal('replay', tag, { id .. ' ' .. home .. ' S ' .. attempt .. ' ' ..
    string.format('%.0f', now_ms) .. ' ' .. queue .. ' ' .. one_line(ARGV[4]) })
  redis.call('ZREM', KEYS[5], id)
  redis.call('UNLINK', KEYS[8])
else
  journal_waited(tag)
end
return { 'OK', seq, durable_seq, now_ms, code }
