-- lib/hand_back: a running job -> its stream again. Needs lib/flow, lib/dispatch, lib/journal; `at` as in lib/move,
-- with the keys stream, dispatched, flow, bell. Returns what follows id and home in the journal line, or nil; and
-- the code.
local function hand_back(at, id, job, attempt, tag, past)
  local doc = redis.pcall('GET', job)
  if failed(doc) then return nil, 'B' end
  if not doc then return nil, 'N' end
  if not dispatch(at.stream, at.dispatched, read_flow(at.flow), at.bell, { id }, { doc }) then return nil, 'B' end
  redis.call('HSET', at.attempts, id, attempt .. ' ' .. tag .. ' ' .. past)
  return ' D ' .. attempt .. ' 0 ' .. at.queue .. ' ' .. one_line(past), 'M'
end
