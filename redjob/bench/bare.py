"""The bare client: redis-py and hiredis, as the floors, the probe and the meters use them."""

from __future__ import annotations

from typing import Any, TypeAlias

import redis

_TIMEOUT_S = 30.0  # longer than any read here blocks

# A redis.Redis; most of its commands have no types that a checker could hold.
BareClient: TypeAlias = Any


def connect(url: str) -> BareClient:
    """Make a client of the server at `url`; it connects at its first command."""
    # Without a retry of its own: a late command that is sent again would be counted twice.
    kind: Any = redis.Redis
    return kind.from_url(url, socket_timeout=_TIMEOUT_S, protocol=2, retry=None)
