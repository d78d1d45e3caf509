-- lib/journal: one entry a call that changed something, numbered by seq (no clock in the id).
-- Needs KEYS[1] meta, KEYS[2] journal, lib/gate, lib/now. `prev` chains the tags, so that a reader
-- notices a primary that lost its newest entries and used their numbers again.
local function journal(op, tag, lines, field, value)
  seq = seq + 1
  local number = string.format('%.0f', seq)
  local block = table.concat(lines, '\n')
  if field then
    redis.call('XADD', KEYS[2], number .. '-0', 'op', op, 'epoch', epoch, 'tag', tag,
      'prev', last_tag, 'at', now_ms, 'r', block, field, value)
  else
    redis.call('XADD', KEYS[2], number .. '-0', 'op', op, 'epoch', epoch, 'tag', tag,
      'prev', last_tag, 'at', now_ms, 'r', block)
  end
  redis.call('HSET', KEYS[1], 'seq', number, 'tag', tag)
  last_tag = tag
end

-- JSON as part of a line: a line feed in it, which can only stand between its tokens, would end the line.
local function one_line(json)
  if string.find(json, '\n', 1, true) then return (string.gsub(json, '\n', ' ')) end
  return json
end

-- Who waits until a call is durable (its tag begins with w) needs an entry of it, also where it changed nothing:
-- once that is committed, so is all that the answer is based on.
local function journal_waited(tag)
  if string.sub(tag, 1, 1) == 'w' then journal('again', tag, {}) end
end

-- For scripts that must be refused at maxmemory (the others call write_when_full): a damaged journal
-- stops them before anything is written, since Lua has no rollback.
local function check_journal() redis.call('XLEN', KEYS[2]) end
