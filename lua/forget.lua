-- forget: drops what the flow of a queue remembers of tenants whose turn is over: virtual time has reached their last.
-- KEYS[1] meta        redjob:{p}:meta           hash
-- KEYS[2] flow        redjob:{p}:flow:<queue>   hash
-- ARGV[1..] field     t:<tenant>, at most 500
-- Returns: OK, seq, durable_seq, now_ms, dropped fields
-- Refuses: NOTREADY partition not opened; REBUILDING try again later
-- @include lib/gate
-- @include lib/now

local refused = gate()
if refused then return { refused } end
local virtual = tonumber(redis.call('HGET', KEYS[2], 'V')) or 0
local over = {}
for i, last in ipairs(redis.call('HMGET', KEYS[2], unpack(ARGV))) do
  if last and tonumber(last) and tonumber(last) <= virtual then over[#over + 1] = ARGV[i] end
end
if #over > 0 then redis.call('HDEL', KEYS[2], unpack(over)) end
return { 'OK', seq, durable_seq, now_ms, #over }
