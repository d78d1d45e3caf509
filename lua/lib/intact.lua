-- lib/intact: stops the call before it has written anything when `running`, or a hash that all jobs of the partition
-- share, has another type: Lua has no rollback, and an error after the first write would leave jobs half moved.
local function check_intact(running, ...)
  redis.call('ZCARD', running)
  for _, hash in ipairs({ ... }) do redis.call('HLEN', hash) end
end
