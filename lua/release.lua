-- release: lets jobs, up to 500 of one queue, out of ready into the stream while there is room.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] ready       redjob:{p}:ready:<queue>  zset
-- KEYS[4] flow        redjob:{p}:flow:<queue>   hash
-- KEYS[5] stream      redjob:{p}:stream:<queue> stream
-- KEYS[6] dispatched  redjob:{p}:dispatched     hash
-- KEYS[7] bell        redjob:{p}:bell:<queue>   list
-- KEYS[8..] job       redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id
-- ARGV[2] run_id      of the server, as read when the connection was made
-- Returns: OK, seq, durable_seq, now_ms, codes, depth
--   codes: D in the stream, F full, A absent (not in ready), N no record, B damaged key
-- Refuses: NOTREADY partition not opened; HOLD server restarted, wait for the fence; REBUILDING
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/failed
-- @include lib/flow
-- @include lib/dispatch

local refused = gate(ARGV[2])
if refused then return { refused } end
check_journal()
local count = #KEYS - 7
local ids, codes, sent, docs_sent, lines = {}, {}, {}, {}, {}
for i = 1, count do ids[i] = string.sub(KEYS[7 + i], -36) end
local flow = read_flow(KEYS[4])
local scores = redis.call('ZMSCORE', KEYS[3], unpack(ids))
local docs = redis.call('MGET', unpack(KEYS, 8))
local room, virtual = flow and flow.room or math.huge, flow and flow.virtual or 0
for i = 1, count do
  if not scores[i] then codes[i] = 'A'
  elseif not docs[i] then codes[i] = 'N'
  elseif #sent < room then
    codes[i] = 'D'
    sent[#sent + 1] = ids[i]
    docs_sent[#docs_sent + 1] = docs[i]
    lines[#lines + 1] = ids[i] .. ' ' .. string.sub(docs[i], 10, 19) .. ' D'
    virtual = math.max(virtual, tonumber(scores[i]) % PRIORITY_STEP)
  else codes[i] = 'F' end
end
if #sent > 0 then
  if dispatch(KEYS[5], KEYS[6], flow, KEYS[7], sent, docs_sent) then
    redis.call('HSET', KEYS[4], 'V', string.format('%.0f', virtual))
    journal('release', ARGV[1], lines)
    redis.call('ZREM', KEYS[3], unpack(sent))
  else
    for i = 1, count do if codes[i] == 'D' then codes[i] = 'B' end end
  end
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes), flow and flow.depth or 0 }
