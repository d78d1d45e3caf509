-- lib/grace: until when consumers must be given time to be heard: one lease time after a silence of whoever sweeps
-- (the server may have been away for everybody). Needs KEYS[1] meta, lib/now. Notes that somebody sweeps, unless
-- lease_ms is '': a worker that mends what it met must not look like a sweeper, which alone ends what is lost.
local SILENCE_MS = 10000

local function grace(lease_ms)
  local seen = redis.call('HMGET', KEYS[1], 'seen_ms', 'grace_until')
  local until_ms = tonumber(seen[2]) or 0
  if lease_ms == '' then return until_ms end
  if not seen[1] or now_ms - tonumber(seen[1]) > SILENCE_MS then
    until_ms = math.max(until_ms, now_ms + tonumber(lease_ms))
    redis.call('HSET', KEYS[1], 'grace_until', string.format('%.0f', until_ms))
  end
  redis.call('HSET', KEYS[1], 'seen_ms', string.format('%.0f', now_ms))
  return until_ms
end
