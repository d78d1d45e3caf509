"""`python -m redjob.demo`: redjob at work on a server of its own, with an account that is checked.

Read in the order of what happens: stack (server and processes) → scenario (what is asked for) → app
(the tasks, and the trace that they leave) → outcome (what came of it) → checks → report.
Nothing in the account is taken from memory of what was asked: it is read from Redis and from the trace.
"""
