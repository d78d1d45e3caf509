-- trim: the owner drops journal entries that nobody needs any more, and old tombstones.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] journal     redjob:{p}:journal        stream
-- KEYS[3] owner       redjob:{p}:owner          hash
-- KEYS[4] finished    redjob:{p}:finished       hash
-- ARGV[1] epoch nonce of the caller, with a space between
-- ARGV[2] seq         entries before it go, it stays: its own repeat is answered as done
-- ARGV[3] entry_tag   the tag that the caller read in that entry
-- ARGV[4] durable_seq what is committed in Postgres, '' without it
-- ARGV[5] keep_ms     tombstones older than this go
-- ARGV[6..] id        candidates among the tombstones, at most 500
-- Returns: OK, seq, durable_seq, now_ms, dropped tombstones
-- Refuses: NOTREADY partition not opened; REBUILDING; FENCED another owner is installed; FORK that entry
--   is not there with that tag: the journal is not the one that was read
-- @include lib/gate
-- @include lib/now
-- @include lib/full

local refused = gate()
if refused then return { refused } end
local owner = redis.call('HMGET', KEYS[3], 'epoch', 'nonce')
if (owner[1] or '') .. ' ' .. (owner[2] or '') ~= ARGV[1] then return { 'FENCED', owner[1] or '0' } end
write_when_full()
if ARGV[2] ~= '0' then
  local entry = redis.call('XRANGE', KEYS[2], ARGV[2] .. '-0', ARGV[2] .. '-0')[1]
  local tag
  if entry then
    for i = 1, #entry[2], 2 do if entry[2][i] == 'tag' then tag = entry[2][i + 1] end end
  end
  if tag ~= ARGV[3] then return { 'FORK' } end
  if ARGV[4] ~= '' and tonumber(ARGV[4]) > durable_seq then
    durable_seq = tonumber(ARGV[4])
    redis.call('HSET', KEYS[1], 'durable_seq', ARGV[4])
  end
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2] .. '-0')
end
local old = {}
if #ARGV > 5 then
  local graves = redis.call('HMGET', KEYS[4], unpack(ARGV, 6))
  for i = 1, #graves do
    local ended = graves[i] and tonumber(string.match(graves[i], '^%a %d+ (%d+)'))
    if ended and now_ms - ended >= tonumber(ARGV[5]) then old[#old + 1] = ARGV[5 + i] end
  end
  if #old > 0 then redis.call('HDEL', KEYS[4], unpack(old)) end
end
return { 'OK', seq, durable_seq, now_ms, #old }
