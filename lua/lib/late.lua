-- lib/late: what becomes of an end whose lease is not the worker's (any more). Needs lib/failed, lib/leave.
-- `at` names the keys finished, attempts, dispatched, due, ready, dead. Returns = repeat of this request, L lost,
-- N in no place, or V: a success of an older attempt counts while nothing newer runs or has ended (a death by crash
-- is such a mistake too).
local function judge_late(at, id, runs_now, job, outcome, attempt, head, tag)
  local grave = redis.call('HGET', at.finished, id)
  if grave then return buried_by(grave, tag) and '=' or 'L' end
  local past = redis.call('HGET', at.attempts, id) or '0'
  if string.match(past, '^%d+ (%S+)') == tag then return '=' end
  if runs_now then return 'L' end
  if redis.call('EXISTS', job) == 0 then return 'N' end
  if outcome ~= 'C' or redis.pcall('GETRANGE', job, 0, 43) ~= head then return 'L' end
  if tonumber(string.match(past, '^%d+')) < tonumber(attempt) - 1 then return 'L' end
  if score_of(at.dead, id) then return string.find(past, '"dead":"crash"', 1, true) and 'V' or 'L' end
  if redis.call('HEXISTS', at.dispatched, id) == 1 then return 'V' end
  return (score_of(at.due, id) or score_of(at.ready, id)) and 'V' or 'N'
end
