-- requeue: gives jobs of one queue a new stream entry: never begun by who read the old one, or the
-- old one is gone, or the record is in no place at all.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] dispatched  redjob:{p}:dispatched     hash
-- KEYS[4] runs        redjob:{p}:runs           hash
-- KEYS[5] due         redjob:{p}:due:<queue>    zset
-- KEYS[6] ready       redjob:{p}:ready:<queue>  zset
-- KEYS[7] held        redjob:{p}:held:<queue>   zset
-- KEYS[8] dead        redjob:{p}:dead:<queue>   zset
-- KEYS[9] flow        redjob:{p}:flow:<queue>   hash
-- KEYS[10] stream     redjob:{p}:stream:<queue> stream
-- KEYS[11] bell       redjob:{p}:bell:<queue>   list
-- KEYS[12] waiting    redjob:{p}:waiting        hash
-- KEYS[13] running    redjob:{p}:running        zset
-- KEYS[14..] job      redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, as read when the connection was made
-- ARGV[3] lease_ms    the grace after a silence, as in reclaim; '' from a worker: it does not count as a sweeper
-- ARGV[4..] entry     per job: the entry that was read and never begun, or ''
-- Returns: OK, seq, durable_seq, now_ms, codes; or GRACE, until_ms
--   codes: D new entry, A nothing to do (it is where it should be), N no record, B damaged key
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING;
--   GRACE consumers are given time to be heard
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/failed
-- @include lib/flow
-- @include lib/dispatch
-- @include lib/grace
-- @include lib/intact

local refused = gate(ARGV[2])
if refused then return { refused } end
check_journal()
check_intact(KEYS[13], KEYS[3], KEYS[4], KEYS[12])
local until_ms = grace(ARGV[3])
if until_ms > now_ms then return { 'GRACE', until_ms } end

local function in_a_place(id)
  return redis.call('HEXISTS', KEYS[4], id) == 1 or redis.call('HEXISTS', KEYS[12], id) == 1
    or score_of(KEYS[5], id) or score_of(KEYS[6], id) or score_of(KEYS[7], id) or score_of(KEYS[8], id)
    or score_of(KEYS[13], id) -- running without its half in runs: reclaim ends it
end

local codes, lines, settled = {}, {}, {}
for i = 1, #KEYS - 13 do
  local job, old = KEYS[13 + i], ARGV[3 + i]
  local id = string.sub(job, -36)
  local doc = redis.pcall('GET', job)
  local named = redis.call('HGET', KEYS[3], id)
  local code = 'A'
  if failed(doc) then
    code = 'B'
  elseif not doc or string.sub(doc, 1, 9) == '{"state":' then
    code = 'N'
  elseif named then
    local there = redis.call('XRANGE', KEYS[10], named, named)[1]
    if named == old or not there then code = 'D' end
  elseif not in_a_place(id) then
    code = 'D'
  end
  if code == 'D' then
    local flow = read_flow(KEYS[9])
    if dispatch(KEYS[10], KEYS[3], flow, KEYS[11], { id }, { doc }) then
      lines[#lines + 1] = id .. ' ' .. string.sub(doc, 10, 19) .. ' D'
    else
      code = 'B'
    end
  end
  if old ~= '' and code ~= 'B' and (code == 'D' or named ~= old) then settled[#settled + 1] = old end
  codes[i] = code
end
if #settled > 0 then
  redis.call('XACK', KEYS[10], 'workers', unpack(settled))
  local gone = redis.call('XDEL', KEYS[10], unpack(settled))
  if gone > 0 then redis.pcall('HINCRBY', KEYS[9], 'depth', -gone) end -- -0 is no integer to Redis 7
end
if #lines > 0 then journal('requeue', ARGV[1], lines) end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes) }
