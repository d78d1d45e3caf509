"""Pure calls: which script, with which keys and arguments, and what its reply means.

A call is built here, sent by `redjob.store` (sync or async, one place each) and read here again, so
that the two clients, the worker and the services share every line that knows a script.
"""
