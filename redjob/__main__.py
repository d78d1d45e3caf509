"""`python -m redjob`: the command line, also where the `redjob` script is not on the PATH."""

from __future__ import annotations

from redjob.cli import main

if __name__ == "__main__":
    main()
