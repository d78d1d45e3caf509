"""Conversations with Redis as generators: each yields a step and is sent its reply.

The sync and the async client differ in waiting alone: both drive the same steps, and throw what a
call raises into them, so that a conversation may answer an error as it answers a reply.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from redjob.calls.call import Call
from redjob.calls.reads import Query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ahead:
    """Send a call and go on: its reply is that of a later `Reply` step, the oldest first.

    It is tried again for so many seconds; None is the store's own deadline.
    """

    call: Call[Any]
    patience_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Wait for the reply of the oldest call that was sent ahead; hurried: try it no more."""

    hurried: bool = False


Step = Call[Any] | Query[Any] | Ahead | Reply
Steps = Generator[Step, Any, T]
