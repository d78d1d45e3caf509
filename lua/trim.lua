-- trim: the owner says what is committed, and drops journal entries that nobody needs any more and old tombstones.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] owner       redjob:{p}:owner          hash
-- KEYS[4] finished    redjob:{p}:finished       hash
-- KEYS[5] acks        redjob:{p}:acks           stream <seq>-0: tag, verdict of calls that somebody waits for
-- ARGV[1] epoch nonce of the caller, with a space between
-- ARGV[2] seq         of an entry that the caller read, the last one committed with Postgres; 0: none
-- ARGV[3] entry_tag   the tag that the caller read in that entry
-- ARGV[4] before      entries below this one go, it stays: its own repeat is answered as done; at most seq
-- ARGV[5] durable_seq what is committed in Postgres, '' without it
-- ARGV[6] settled_seq tombstones of later entries stay, '' without Postgres
-- ARGV[7] keep_ms     tombstones older than this go
-- ARGV[8] acks        how many committed calls are waited for, at most 500
-- ARGV[9..] id        seq and tag of each of those, then candidates among the tombstones, at most 500
-- Returns: OK, seq, durable_seq, now_ms, dropped tombstones
-- Refuses: NOTREADY partition not opened; REBUILDING; FENCED another owner is installed; FORK that entry
--   is not there with that tag: the journal is not the one that was read
-- @include lib/gate
-- @include lib/now
-- @include lib/full
-- @include lib/failed

local refused = gate()
if refused then return { refused } end
local owner = redis.call('HMGET', KEYS[3], 'epoch', 'nonce')
if (owner[1] or '') .. ' ' .. (owner[2] or '') ~= ARGV[1] then return { 'FENCED', owner[1] or '0' } end
write_when_full()
local first = 8 + tonumber(ARGV[8]) * 2 -- ARGV before the tombstones

-- A call that was said to be committed already has a lower or the same number: XADD would refuse it.
local function acknowledge()
  local newest = redis.pcall('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1)
  if failed(newest) then return end -- who waits asks again
  local told = newest[1] and tonumber(string.match(newest[1][1], '^%d+')) or 0
  for i = 9, first, 2 do
    if tonumber(ARGV[i]) > told then
      redis.call('XADD', KEYS[5], 'MAXLEN', '~', '10000', ARGV[i] .. '-0', 'tag', ARGV[i + 1], 'verdict', 'C')
    end
  end
end

if ARGV[2] ~= '0' then
  local entry = redis.call('XRANGE', KEYS[2], ARGV[2] .. '-0', ARGV[2] .. '-0')[1]
  local tag
  if entry then
    for i = 1, #entry[2], 2 do if entry[2][i] == 'tag' then tag = entry[2][i + 1] end end
  end
  if tag ~= ARGV[3] then return { 'FORK' } end
  if ARGV[5] ~= '' and tonumber(ARGV[5]) > durable_seq then
    durable_seq = tonumber(ARGV[5])
    redis.call('HSET', KEYS[1], 'durable_seq', ARGV[5])
  end
  if first > 8 then acknowledge() end
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[4] .. '-0')
end
local old, settled_seq = {}, tonumber(ARGV[6]) or math.huge
if #ARGV > first then
  local graves = redis.call('HMGET', KEYS[4], unpack(ARGV, first + 1))
  for i = 1, #graves do
    local number, ended = string.match(graves[i] or '', '^%a (%d+) (%d+)')
    if number and tonumber(number) <= settled_seq and now_ms - tonumber(ended) >= tonumber(ARGV[7]) then
      old[#old + 1] = ARGV[first + i]
    end
  end
  if #old > 0 then redis.call('HDEL', KEYS[4], unpack(old)) end
end
return { 'OK', seq, durable_seq, now_ms, #old }
