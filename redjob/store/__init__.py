"""Sends calls to Redis: the only package that does.

`SyncStore` and `AsyncStore` differ in waiting alone. A call goes to the server with a request id and
is repeated with the same one until it is answered or its deadline is over (`policy.Tries`); every
script is idempotent by that id. Each connection reads the server's run_id when it is made: scripts
that move jobs compare it with what the partition's owner has checked.
"""
