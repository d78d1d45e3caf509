-- locate: reads every place that can hold a job, in one step, so that a moving job is seen once.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] finished    redjob:{p}:finished       hash
-- KEYS[3] dispatched  redjob:{p}:dispatched     hash
-- KEYS[4] running     redjob:{p}:running        zset
-- KEYS[5] runs        redjob:{p}:runs           hash
-- KEYS[6] attempts    redjob:{p}:attempts       hash
-- KEYS[7] cancels     redjob:{p}:cancels        hash
-- KEYS[8] progress    redjob:{p}:progress       hash
-- KEYS[9] waiting     redjob:{p}:waiting        hash
-- KEYS[10] due        redjob:{p}:due:<queue>    zset
-- KEYS[11] ready      redjob:{p}:ready:<queue>  zset
-- KEYS[12] held       redjob:{p}:held:<queue>   zset
-- KEYS[13] dead       redjob:{p}:dead:<queue>   zset
-- KEYS[14] job        redjob:{p}:job:<id>       string
-- KEYS[15] result     redjob:{p}:result:<id>    string
-- Returns: OK, seq, durable_seq, now_ms, doc, result, due, ready, held, dead, entry, run, lease,
--   tombstone, attempts, cancel, progress, workflow ('' where there is nothing)
-- Refuses: NOTREADY partition not opened
-- @include lib/gate
-- @include lib/now

if gate() == 'NOTREADY' then return { 'NOTREADY' } end
local id = string.sub(KEYS[14], -36)
local found = {
  redis.call('GET', KEYS[14]), redis.call('GET', KEYS[15]), redis.call('ZSCORE', KEYS[10], id),
  redis.call('ZSCORE', KEYS[11], id), redis.call('ZSCORE', KEYS[12], id), redis.call('ZSCORE', KEYS[13], id),
  redis.call('HGET', KEYS[3], id), redis.call('HGET', KEYS[5], id), redis.call('ZSCORE', KEYS[4], id),
  redis.call('HGET', KEYS[2], id), redis.call('HGET', KEYS[6], id), redis.call('HGET', KEYS[7], id),
  redis.call('HGET', KEYS[8], id), redis.call('HGET', KEYS[9], id),
}
local reply = { 'OK', seq, durable_seq, now_ms }
for i = 1, 14 do reply[4 + i] = found[i] or '' end
return reply
