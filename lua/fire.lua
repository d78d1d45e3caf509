-- fire: moves due jobs, up to 500 of one queue, from due to the stream.
-- Never early: the score is compared with the server's own clock. A job over the depth limit, or
-- behind a non-empty ready, is answered F; the owner reads its record and calls again in mode park.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] queues      redjob:{p}:queues         zset
-- KEYS[4] due         redjob:{p}:due:<queue>    zset
-- KEYS[5] ready       redjob:{p}:ready:<queue>  zset
-- KEYS[6] flow        redjob:{p}:flow:<queue>   hash
-- KEYS[7] stream      redjob:{p}:stream:<queue> stream
-- KEYS[8] dispatched  redjob:{p}:dispatched     hash
-- KEYS[9] bell        redjob:{p}:bell:<queue>   list
-- KEYS[10..] job      redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, as read when the connection was made
-- ARGV[3] queue
-- ARGV[4] mode        fire or park
-- ARGV[5..] score priority tenant  per job, mode park only: the score that was seen in due
-- Returns: OK, seq, durable_seq, now_ms, codes, depth, earliest
--   codes: D in the stream, R in ready, F full, E early, A absent (not in due), C changed score,
--   N no record, B damaged key; earliest: next score in due, '' when none
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/failed
-- @include lib/flow
-- @include lib/park
-- @include lib/dispatch

local refused = gate(ARGV[2])
if refused then return { refused } end
check_journal()
local tag, queue, parking = ARGV[1], ARGV[3], ARGV[4] == 'park'
local count = #KEYS - 9
local ids, codes = {}, {}
local flow = read_flow(KEYS[6])

local sent, sent_docs, parked, priorities, tenants = {}, {}, {}, {}, {}
local docs = {}
if count > 0 then
  for i = 1, count do ids[i] = string.sub(KEYS[9 + i], -36) end
  local scores = redis.call('ZMSCORE', KEYS[4], unpack(ids))
  docs = redis.call('MGET', unpack(KEYS, 10))
  local room = flow and flow.room or math.huge
  if has_waiting(KEYS[5]) then room = 0 end
  local n = 0
  for i = 1, count do
    local at = tonumber(scores[i])
    if not at then codes[i] = 'A'
    elseif parking and at ~= tonumber(ARGV[2 + i * 3]) then codes[i] = 'C'
    elseif at > now_ms then codes[i] = 'E'
    elseif not docs[i] then codes[i] = 'N'
    elseif n < room then
      n = n + 1
      sent[n], sent_docs[n] = ids[i], docs[i]
      codes[i] = 'D'
    elseif parking then
      parked[#parked + 1] = ids[i]
      priorities[#priorities + 1] = ARGV[3 + i * 3]
      tenants[#tenants + 1] = ARGV[4 + i * 3]
      codes[i] = 'R'
    else codes[i] = 'F' end
  end
end

local gone = {}
local sent_ok = #sent == 0 or dispatch(KEYS[7], KEYS[8], flow, KEYS[9], sent, sent_docs)
local parked_ok = #parked == 0 or park(KEYS[5], flow, parked, priorities, tenants)
local lines = {}
local n, sub = 0, string.sub
for i = 1, count do
  local code = codes[i]
  if (code == 'D' and not sent_ok) or (code == 'R' and not parked_ok) then
    codes[i] = 'B'
  elseif code == 'D' or code == 'R' then
    n = n + 1
    gone[n] = ids[i]
    lines[n] = ids[i] .. ' ' .. sub(docs[i], 10, 19) .. ' ' .. code
  end
end
if #gone > 0 then
  journal('fire', tag, lines)
  redis.call('ZREM', KEYS[4], unpack(gone)) -- last: a job is never in no place
end
local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
failed(redis.pcall('ZADD', KEYS[3], first[2] or '+inf', queue)) -- what has fired has fired
return { 'OK', seq, durable_seq, now_ms, table.concat(codes), flow and flow.depth or 0, first[2] or '' }
