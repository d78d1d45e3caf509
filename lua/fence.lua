-- fence: installs a new owner: its epoch and nonce, and the run_id of the server that it has checked.
-- The only script that creates meta, so that an emptied Redis never looks like an empty queue.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] owner       redjob:{p}:owner          hash   epoch, nonce, before (run_id, for a repeat)
-- ARGV[1] epoch       higher than every epoch before
-- ARGV[2] nonce       random: two candidates that computed the same epoch still differ
-- ARGV[3] run_id      of the server, as read when the connection was made
-- ARGV[4] incarnation to install when meta is created, '' when it must be there already
-- ARGV[5] layout      version of keys and formats
-- ARGV[6] depth_limit default of queues without one: a number or none
-- ARGV[7] grace_ms    reclaim and requeue wait this long after a changed run_id, for workers to be heard
-- ARGV[8] postgres    1: enqueue writes records into the journal, which goes to Postgres; 0: it does not
-- Returns: OK, seq, durable_seq, now_ms, incarnation, run_id before ('' when created), tag
--   · the same epoch and nonce again give the same reply
-- Refuses: NOTREADY meta is missing and may not be created; FENCED, epoch: the stored one is not lower
-- @include lib/now
-- @include lib/full

local owner = redis.call('HMGET', KEYS[3], 'epoch', 'nonce', 'before')
local mine = owner[1] == ARGV[1] and owner[2] == ARGV[2]
if not mine and owner[1] and tonumber(owner[1]) >= tonumber(ARGV[1]) then return { 'FENCED', owner[1] } end
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'run_id', 'seq', 'tag', 'durable_seq')
if not meta[1] and ARGV[4] == '' then return { 'NOTREADY' } end
write_when_full() -- after a restart at maxmemory, no worker may take before this
if not meta[1] then
  -- a journal that outlived its meta (deleted by hand) goes on above its last number
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  local seq = last and string.match(last[1], '^%d+') or '0'
  meta = { ARGV[4], '', seq, '', '0' }
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[4], 'state', 'RUNNING', 'seq', seq, 'tag', '',
    'durable_seq', '0', 'created_ms', now_ms)
end
local before = meta[2] or ''
if mine and before == ARGV[3] then before = owner[3] or '' end
if meta[2] ~= '' and meta[2] ~= ARGV[3] then
  redis.call('HSET', KEYS[1], 'grace_until', string.format('%.0f', now_ms + tonumber(ARGV[7])))
end
redis.call('HSET', KEYS[1], 'run_id', ARGV[3], 'epoch', ARGV[1], 'layout', ARGV[5], 'depth_limit', ARGV[6],
  'postgres', ARGV[8])
redis.call('HSET', KEYS[3], 'epoch', ARGV[1], 'nonce', ARGV[2], 'before', before)
return { 'OK', tonumber(meta[3]), tonumber(meta[5]) or 0, now_ms, meta[1], before, meta[4] or '' }
