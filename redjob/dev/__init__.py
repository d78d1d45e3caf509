"""Several redjob processes under one parent: what `redjob dev`, the demo and `worker --with-scheduler` run.

Invariants:

- A child does not outlive its parent: it stops when its stdin ends, and the kernel ends that with
  the parent, however the parent dies.
- A child that ends by itself is started again, ever more slowly while it keeps ending.
- Children are signalled by the pid of a process that this one has started and not yet reaped, so
  never by a pid that may have become somebody else's.
"""

from redjob.dev.children import Child, ChildSpec, Say, WrongUse, run_children
from redjob.dev.servers import keep_up, run_once

__all__ = ["Child", "ChildSpec", "Say", "WrongUse", "keep_up", "run_children", "run_once"]
