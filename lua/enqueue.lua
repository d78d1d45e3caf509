-- enqueue: accepts up to 500 jobs of one partition, queue, tenant and priority.
-- Due now -> stream while ready is empty and there is room, else ready; later -> due.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] finished    redjob:{p}:finished       hash
-- KEYS[4] dispatched  redjob:{p}:dispatched     hash
-- KEYS[5] queues      redjob:{p}:queues         zset
-- KEYS[6] due         redjob:{p}:due:<queue>    zset
-- KEYS[7] ready       redjob:{p}:ready:<queue>  zset
-- KEYS[8] flow        redjob:{p}:flow:<queue>   hash
-- KEYS[9] stream      redjob:{p}:stream:<queue> stream
-- KEYS[10] bell       redjob:{p}:bell:<queue>   list
-- KEYS[11..] job      redjob:{p}:job:<id>       string
-- ARGV[1] tag         request id
-- ARGV[2] again       1 when an earlier try of this request may have got through, else 0
-- ARGV[3] queue
-- ARGV[4] tenant
-- ARGV[5] priority    0 (first) to 9
-- ARGV[6..] run_at_ms doc  a pair per job; run_at_ms 0 is now
-- Returns: OK, seq, durable_seq, now_ms, codes, {index, doc, ...}
--   codes, a letter a job: S due, D stream, R ready, E exists (record or stub follows by index),
--   T finished already (repeat of a request whose job has ended), B damaged key (not accepted)
-- Refuses: NOTREADY no scheduler has opened this partition; REBUILDING try again later
-- @include lib/gate
-- @include lib/now
-- @include lib/journal
-- @include lib/full
-- @include lib/failed
-- @include lib/flow
-- @include lib/park
-- @include lib/dispatch
-- @include lib/known

local refused = gate()
if refused then return { refused } end
check_journal()
local tag, again, queue = ARGV[1], ARGV[2] == '1', ARGV[3]
local count = #KEYS - 10
local codes, ids, sub = {}, {}, string.sub
for i = 1, count do ids[i] = sub(KEYS[10 + i], -36) end

local known = {}
if again or redis.call('EXISTS', unpack(KEYS, 11)) > 0 then known = find_known(ids, codes, 11, KEYS[3]) end

local due, now, n, earliest = {}, {}, 0, nil
for i = 1, count do
  if not codes[i] then
    local at = ARGV[4 + i * 2]
    local run_at = tonumber(at)
    if run_at > now_ms then
      n = n + 2
      due[n - 1], due[n] = at, ids[i]
      if not earliest or run_at < earliest then earliest = run_at end
      codes[i] = 'S'
    else
      now[#now + 1] = i
    end
  end
end

local function damaged(code)
  for i = 1, count do if codes[i] == code then codes[i] = 'B' end end
end

if earliest then
  redis.call('ZADD', KEYS[5], 'LT', earliest, queue) -- first: owners look at no queue that is not there
  if failed(redis.pcall('ZADD', KEYS[6], unpack(due))) then damaged('S') end
end

if #now > 0 then
  local flow = read_flow(KEYS[8])
  local room = flow and flow.room or math.huge
  if has_waiting(KEYS[7]) then room = 0 end
  local sent, docs, parked, priorities, tenants = {}, {}, {}, {}, {}
  for k, i in ipairs(now) do
    if k <= room then
      sent[#sent + 1] = ids[i]
      docs[#docs + 1] = ARGV[5 + i * 2]
      codes[i] = 'D'
    else
      parked[#parked + 1] = ids[i]
      priorities[#priorities + 1] = ARGV[5]
      tenants[#tenants + 1] = ARGV[4]
      codes[i] = 'R'
    end
  end
  if not flow or not flow.has_group then redis.call('ZADD', KEYS[5], 'NX', '+inf', queue) end
  if #sent > 0 and not dispatch(KEYS[9], KEYS[4], flow, KEYS[10], sent, docs) then damaged('D') end
  if #parked > 0 and not park(KEYS[7], flow, parked, priorities, tenants) then damaged('R') end
end

local records, lines, keyed, tail = {}, {}, {}, ' ' .. queue
n = 0
for i = 1, count do
  local code = codes[i]
  if code == 'S' or code == 'D' or code == 'R' then
    local doc = ARGV[5 + i * 2]
    n = n + 1
    records[n * 2 - 1], records[n * 2] = KEYS[10 + i], doc
    local line = ids[i] .. ' ' .. sub(doc, 10, 19) .. ' ' .. code .. ' 0 ' .. ARGV[4 + i * 2] .. tail
    if with_postgres then line = line .. ' ' .. one_line(doc) end
    lines[n] = line
    if sub(ids[i], 15, 15) ~= '7' then keyed[#keyed + 1] = ids[i] end
  end
end
if n > 0 then
  redis.call('MSET', unpack(records))
  journal('enqueue', tag, lines)
  if #keyed > 0 then redis.pcall('HDEL', KEYS[3], unpack(keyed)) end -- the key's window is over: a new life
else
  write_when_full() -- the repeat of what was accepted is answered at maxmemory too
  journal('again', tag, lines)
end
return { 'OK', seq, durable_seq, now_ms, table.concat(codes), known }
