-- lib/known: which of the jobs to be accepted are there already: sets their codes, E (record or stub) or T (ended
-- lately), and returns what stands there as index, document, ...; record keys begin at KEYS[first].
local function find_known(ids, codes, first, finished)
  local docs = redis.call('MGET', unpack(KEYS, first))
  local graves = redis.call('HMGET', finished, unpack(ids))
  local known = {}
  for i = 1, #ids do
    if docs[i] then
      codes[i] = 'E'
      known[#known + 1], known[#known + 2] = i, docs[i]
    elseif graves[i] and string.sub(ids[i], 15, 15) == '7' then
      codes[i] = 'T' -- a random id: nobody else can have had it
    end
  end
  return known
end
