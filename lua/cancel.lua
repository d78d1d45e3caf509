-- cancel: ends a job that has not begun, asks a running one to stop.
-- A dispatched job leaves `dispatched`; its entry stays for take to settle, since deleting an unread
-- entry makes the group's lag nil and autoscalers read lag.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] finished    redjob:{p}:finished       hash
-- KEYS[4] dispatched  redjob:{p}:dispatched     hash
-- KEYS[5] runs        redjob:{p}:runs           hash
-- KEYS[6] attempts    redjob:{p}:attempts       hash
-- KEYS[7] cancels     redjob:{p}:cancels        hash
-- KEYS[8] due         redjob:{p}:due:<queue>    zset
-- KEYS[9] ready       redjob:{p}:ready:<queue>  zset
-- KEYS[10] held       redjob:{p}:held:<queue>   zset
-- KEYS[11] dead       redjob:{p}:dead:<queue>   zset
-- KEYS[12] done       redjob:{p}:done           stream
-- KEYS[13] waiters    redjob:{p}:waiters        string
-- KEYS[14] job        redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id; one that begins with w gets a journal entry in any case
-- ARGV[2] stub        '' or '<ttl ms> <JSON>'
-- Returns: OK, seq, durable_seq, now_ms, code, detail
--   code: K cancelled, Q asked the running attempt to stop, F dead already, E ended (detail: stub or
--   tombstone), A absent (ask)
-- Refuses: NOTREADY partition not opened; REBUILDING try again later
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/full
-- @include lib/failed
-- @include lib/leave

local refused = gate()
if refused then return { refused } end
write_when_full()
redis.call('HLEN', KEYS[4]) -- damaged, it must stop the call here and not half way
local tag, job = ARGV[1], KEYS[14]
local id = string.sub(job, -36)
local function reply(code, detail) return { 'OK', seq, durable_seq, now_ms, code, detail or '' } end
local function unchanged(code, detail)
  journal_waited(tag)
  return reply(code, detail)
end

local head = redis.call('GETRANGE', job, 0, 43)
local grave = redis.call('HGET', KEYS[3], id)
if head == '' then
  if not grave then return unchanged('A') end
  if string.sub(grave, 1, 1) == 'K' and buried_by(grave, tag) then return unchanged('K') end
  return unchanged('E', grave)
end
if string.sub(head, 1, 9) == '{"state":' then
  if grave and string.sub(grave, 1, 1) == 'K' and buried_by(grave, tag) then return unchanged('K') end
  return unchanged('E', redis.call('GET', job))
end
local line = id .. ' ' .. string.sub(head, 10, 19)
if redis.call('HEXISTS', KEYS[5], id) == 1 then
  if redis.call('HSETNX', KEYS[7], id, now_ms) == 1 then
    journal('cancel', tag, { line .. ' T' })
    return reply('Q')
  end
  return unchanged('Q')
end
if score_of(KEYS[11], id) then return unchanged('F') end

local past = redis.call('HGET', KEYS[6], id)
local attempt = past and string.match(past, '^%d+') or '0'
redis.call('HSET', KEYS[3], id, tombstone('K', attempt, tag))
announce(KEYS[13], KEYS[12], { id }, { 'K' })
journal('cancel', tag, { line .. ' K ' .. attempt })
redis.pcall('ZREM', KEYS[8], id)
redis.pcall('ZREM', KEYS[9], id)
redis.pcall('ZREM', KEYS[10], id)
redis.call('HDEL', KEYS[4], id)
redis.call('HDEL', KEYS[6], id)
if ARGV[2] == '' or not drop_record(job, ARGV[2]) then redis.call('UNLINK', job) end
return reply('K')
