-- lib/move: a running job -> due or dead. Needs lib/now, lib/failed, lib/journal. `at` names the keys due, dead,
-- queues, attempts and the queue. Each returns what follows id and home in the journal line, or nil on a damaged
-- key; the attempts field carries the tag of the request, so that a repeat finds it. The caller removes the
-- running attempt.

local function to_due(at, id, run_at, attempt, tag, past)
  -- queues first: owners look at no queue that is not there
  if failed(redis.pcall('ZADD', at.queues, 'LT', run_at, at.queue)) then return nil end
  if failed(redis.pcall('ZADD', at.due, run_at, id)) then return nil end
  redis.call('HSET', at.attempts, id, attempt .. ' ' .. tag .. ' ' .. past)
  return ' S ' .. attempt .. ' ' .. string.format('%.0f', run_at) .. ' ' .. at.queue .. ' ' .. one_line(past)
end

-- data is the past, a line feed and the verdict, which stays as the result for ttl ms ('0': not at all)
local function to_dead(at, id, attempt, tag, data, result, ttl)
  local past, verdict = string.match(data, '^([^\n]*)\n?(.*)$')
  if failed(redis.pcall('ZADD', at.dead, now_ms, id)) then return nil end
  redis.call('HSET', at.attempts, id, attempt .. ' ' .. tag .. ' ' .. past)
  if ttl ~= '0' then redis.call('SET', result, verdict, 'PX', ttl) end
  return ' F ' .. attempt .. ' 0 ' .. at.queue .. ' ' .. past
end
