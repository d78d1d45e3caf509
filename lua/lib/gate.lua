-- lib/gate: one HMGET of meta decides whether the call may go on, and carries the journal position.
-- Needs KEYS[1] meta. `asker` is the run_id that the caller read when its connection was made; a
-- server that restarted or failed over since the last fence answers HOLD to whoever moves jobs.
local seq, last_tag, epoch, durable_seq, depth_limit, with_postgres

local function gate(asker)
  local meta = redis.call('HMGET', KEYS[1], 'state', 'run_id', 'seq', 'tag', 'epoch', 'durable_seq',
    'depth_limit', 'postgres')
  if not meta[1] then return 'NOTREADY' end
  if asker and asker ~= meta[2] then return 'HOLD' end
  seq = tonumber(meta[3]) or 0
  last_tag = meta[4] or ''
  epoch = meta[5] or '0'
  durable_seq = tonumber(meta[6]) or 0
  depth_limit = meta[7]
  with_postgres = meta[8] == '1'
  if meta[1] ~= 'RUNNING' then return meta[1] end
  return nil
end
