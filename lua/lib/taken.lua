-- lib/taken: what the last take of a worker has started, for the answer to a repeated request. Needs lib/now.
local TAKEN_TTL_MS = '120000'

local function remember(taken, tag, ids)
  redis.call('SET', taken, tag .. ' ' .. table.concat(ids, ' '), 'PX', TAKEN_TTL_MS)
end

-- Returns id, attempts, '' of each job that is still the worker's, or nil when the last take was another request.
local function recall(taken, tag, worker, runs_key, attempts_key)
  local ids, mine = {}, {}
  for word in string.gmatch(redis.call('GET', taken) or '', '%S+') do ids[#ids + 1] = word end
  if table.remove(ids, 1) ~= tag then return nil end
  local runs = redis.call('HMGET', runs_key, unpack(ids))
  local past = redis.call('HMGET', attempts_key, unpack(ids))
  for i = 1, #ids do
    if runs[i] and string.match(runs[i], ' (.*)$') == worker then
      mine[#mine + 1], mine[#mine + 2], mine[#mine + 3] = ids[i], past[i] or '', ''
    end
  end
  return mine
end
