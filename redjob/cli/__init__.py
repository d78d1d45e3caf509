"""The command line: what people and scripts start redjob by; top of every chain.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 Redis not reachable. An error is one line on stderr.
"""

from redjob.cli.root import main

__all__ = ["main"]
