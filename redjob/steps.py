"""Conversations with Redis as generators: each yields a call or a query and is sent its reply.

The sync and the async client differ in waiting alone: both drive the same steps, and throw what a
call raises into them, so that a conversation may answer an error as it answers a reply.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from redjob.calls.call import Call
from redjob.calls.reads import Query

T = TypeVar("T")
Step = Call[Any] | Query[Any]
Steps = Generator[Step, Any, T]
