-- lib/entries: reads up to count entries that nobody has read, all as one consumer, so that a worker that restarts
-- leaves no dead one behind. NOACK: the caller deletes them in this very call, and each pending one would cost an
-- XCLAIM in the append-only file and to every replica.
-- Returns all entry ids; how many are jobs; their ids, entries and records as lists; the bytes of the records and
-- of the largest. Nothing when there is nothing, or a damaged key.
local function read_entries(stream, count)
  local read = redis.pcall('XREADGROUP', 'GROUP', 'workers', 'take', 'COUNT', count, 'NOACK', 'STREAMS', stream, '>')
  if not read then return nil end
  if read.err then
    if string.find(read.err, 'NOGROUP', 1, true) and redis.call('EXISTS', stream) == 1 then
      redis.pcall('XGROUP', 'CREATE', stream, 'workers', '0') -- lost with the stream; the next take reads
    end
    return nil
  end
  local all, ids, entries, docs = {}, {}, {}, {}
  local found, n, bytes, largest = read[1][2], 0, 0, 0
  for i = 1, #found do
    local entry, fields = found[i][1], found[i][2]
    all[i] = entry
    if fields and fields[1] == 'id' and fields[3] == 'doc' then -- anything else is not ours: settled
      local size = #fields[4]
      n = n + 1
      ids[n], entries[n], docs[n] = fields[2], entry, fields[4]
      bytes = bytes + size
      if size > largest then largest = size end
    end
  end
  return all, n, ids, entries, docs, bytes, largest
end
