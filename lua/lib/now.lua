-- lib/now: the one clock of all scripts, Redis TIME in whole ms, read once a call.
-- (TIME is live inside a script on Redis 7, so a second reading could differ.) Tests replace this file.
local now_ms
do
  local time = redis.call('TIME')
  now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end
