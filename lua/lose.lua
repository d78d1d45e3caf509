-- lose: what becomes of jobs whose record is gone (deleted by hand, evicted): it is put back from the entry that
-- still carries it; without one the id goes to `lost`, and out of every place, so that it holds up nobody.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] dispatched  redjob:{p}:dispatched     hash
-- KEYS[4] running     redjob:{p}:running        zset
-- KEYS[5] runs        redjob:{p}:runs           hash
-- KEYS[6] attempts    redjob:{p}:attempts       hash
-- KEYS[7] cancels     redjob:{p}:cancels        hash
-- KEYS[8] progress    redjob:{p}:progress       hash
-- KEYS[9] lost        redjob:{p}:lost           zset
-- KEYS[10..] due ready held stream  of each queue, then job of each id
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, as read when the connection was made
-- ARGV[3] queues      how many queues stand in KEYS: all that may hold these jobs
-- Returns: OK, seq, durable_seq, now_ms, codes
--   codes: L lost, D its record is back and it waits in its stream, H a lease lives (who holds it has the
--   record), A nothing to do: the record is there, or no place names the job
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/full
-- @include lib/failed

local refused = gate(ARGV[2])
if refused then return { refused } end
write_when_full()
local jobs_at = 9 + 4 * tonumber(ARGV[3]) -- KEYS before the first job
local codes, gone, lines = {}, {}, {}

-- The record in the entry that `dispatched` names, in whichever stream that is.
local function carried(id, entry)
  for k = 13, jobs_at, 4 do
    local found = redis.pcall('XRANGE', KEYS[k], entry, entry)
    local fields = not failed(found) and found[1] and found[1][2]
    if fields and fields[1] == 'id' and fields[2] == id and fields[3] == 'doc' then return fields[4] end
  end
  return nil
end

local function waits(id)
  for k = 10, jobs_at, 4 do
    if score_of(KEYS[k], id) or score_of(KEYS[k + 1], id) or score_of(KEYS[k + 2], id) then return true end
  end
  return false
end

local function judge(id, job)
  if redis.call('EXISTS', job) == 1 then return 'A' end
  local lease, entry = score_of(KEYS[4], id), redis.call('HGET', KEYS[3], id)
  if lease and tonumber(lease) > now_ms then return 'H' end
  local doc = entry and carried(id, entry)
  if doc then
    redis.call('SET', job, doc)
    lines[#lines + 1] = id .. ' ' .. string.sub(doc, 10, 19) .. ' D'
    return 'D'
  end
  if not (lease or entry or waits(id) or redis.call('HEXISTS', KEYS[5], id) == 1) then
    return redis.call('ZSCORE', KEYS[9], id) and 'L' or 'A'
  end
  local attempt = string.match(redis.call('HGET', KEYS[5], id) or redis.call('HGET', KEYS[6], id) or '', '^%d+')
  redis.call('ZADD', KEYS[9], now_ms, id)
  gone[#gone + 1] = id
  lines[#lines + 1] = id .. ' - L ' .. (attempt or '0') -- its home went with its record
  return 'L'
end

for i = jobs_at + 1, #KEYS do codes[#codes + 1] = judge(string.sub(KEYS[i], -36), KEYS[i]) end
if #lines > 0 then journal('lose', ARGV[1], lines) end
if #gone > 0 then
  for k = 10, jobs_at, 4 do
    for place = k, k + 2 do redis.pcall('ZREM', KEYS[place], unpack(gone)) end
  end
  redis.pcall('ZREM', KEYS[4], unpack(gone))
  for _, place in ipairs({ 3, 5, 6, 7, 8 }) do redis.pcall('HDEL', KEYS[place], unpack(gone)) end
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
