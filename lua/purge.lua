-- purge: drops dead jobs of one queue for good: record (a stub may stay), attempts and result.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] dead        redjob:{p}:dead:<queue>   zset
-- KEYS[4] attempts    redjob:{p}:attempts       hash
-- KEYS[5] finished    redjob:{p}:finished       hash
-- KEYS[6..] job result  of each id
-- ARGV[1] tag         request id
-- ARGV[2] keep_ms     jobs that died less than this ago stay
-- ARGV[3..] stub      per job: '' or '<ttl ms> <JSON>'
-- Returns: OK, seq, durable_seq, now_ms, codes
--   codes: M dropped, = repeat of this request, Y died too lately, A not dead (any more)
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
redis.call('HLEN', KEYS[5]) -- damaged, it must stop the call here and not half way
local tag, keep_ms = ARGV[1], tonumber(ARGV[2])
local codes, gone, graves, unlink, lines = {}, {}, {}, {}, {}

local function drop(id, job, result, stub)
  local died = redis.call('ZSCORE', KEYS[3], id)
  if not died then
    local grave = redis.call('HGET', KEYS[5], id)
    return buried_by(grave, tag) and '=' or 'A'
  end
  if now_ms - tonumber(died) < keep_ms then return 'Y' end
  local attempt = string.match(redis.call('HGET', KEYS[4], id) or '0', '^%d+')
  graves[#graves + 1] = id
  graves[#graves + 1] = tombstone('F', attempt, tag)
  local home = redis.pcall('GETRANGE', job, 9, 18)
  lines[#lines + 1] = id .. ' ' .. (failed(home) and '' or home) .. ' F ' .. attempt
  if stub == '' or not drop_record(job, stub) then unlink[#unlink + 1] = job end
  unlink[#unlink + 1] = result
  gone[#gone + 1] = id
  return 'M'
end

for i = 1, #ARGV - 2 do
  local job = KEYS[4 + i * 2]
  codes[i] = drop(string.sub(job, -36), job, KEYS[5 + i * 2], ARGV[2 + i])
end
if #gone > 0 then
  redis.call('HSET', KEYS[5], unpack(graves))
  journal('purge', tag, lines)
  redis.call('UNLINK', unpack(unlink))
  redis.call('HDEL', KEYS[4], unpack(gone))
  redis.call('ZREM', KEYS[3], unpack(gone)) -- last: until here a repeat finds the job dead
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
