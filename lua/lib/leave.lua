-- lib/leave: the end of a job: tombstone, record or stub, wake-up of those who wait for it.
-- Needs lib/gate, lib/now. A tombstone `<state> <seq> <ms> <attempt> <tag>` answers repeated calls and
-- keeps a load from bringing back what has moved on; its seq is that of the entry about to be written.
local function tombstone(state, attempt, tag)
  return state .. ' ' .. string.format('%.0f', seq + 1) .. ' ' .. string.format('%.0f', now_ms) ..
    ' ' .. attempt .. ' ' .. tag
end

-- Most jobs of a call end alike: what their tombstones and journal lines share is made once.
local endings = {}
local function ending(state, attempt, tag)
  local key = state .. attempt
  local found = endings[key]
  if not found then
    found = { grave = tombstone(state, attempt, tag), line = ' ' .. state .. ' ' .. attempt }
    endings[key] = found
  end
  return found
end

-- Whether a tombstone was written by this request: it is the last word.
local function buried_by(grave, tag) return grave and string.match(grave, '%S+$') == tag end

-- stub is '' or '<ttl ms> <JSON>': what stays of a keyed job until its window ends.
local function drop_record(job_key, stub)
  local ttl, doc = string.match(stub, '^(%d+) (.*)$')
  if ttl and tonumber(ttl) > 0 then
    redis.call('SET', job_key, doc, 'PX', ttl)
    return true
  end
  return false
end

-- waiters exists while somebody waits for a result of this partition: one EXISTS a call.
local function announce(waiters, done, ids, states)
  if #ids == 0 or redis.call('EXISTS', waiters) == 0 then return end
  for i = 1, #ids do -- pcall: who waits also looks by himself, and the job has ended
    redis.pcall('XADD', done, 'MAXLEN', '~', '10000', '*', 'id', ids[i], 'state', states[i])
  end
end
