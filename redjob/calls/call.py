"""One call of a script: what is sent, and how its reply is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from redjob.errors import Fenced, Grace, Hold, JournalForked, NotReady, Rebuilding
from redjob.keys import PartitionKeys
from redjob.partitions import key_slot

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)  # who takes the call of anything takes this one
Arg = str | bytes | int | float
RETRY_AFTER_S = 2.0


@dataclass(slots=True)
class Call(Generic[T_co]):
    """A script call on one partition (None: on a quorum key), ready to be sent and repeated.

    `again_at` and `run_id_at` are positions in `args` that the store fills: "1" when an earlier try
    may have got through, and the run_id of the server behind the connection used. `replicas` must
    have it before the call counts as answered.
    """

    script: str
    part: PartitionKeys | None
    keys: list[str]
    args: list[Arg]
    read: Callable[[list[Any]], T_co]
    again_at: int = -1
    run_id_at: int = -1
    replicas: int = 0

    @property
    def slot(self) -> int:
        """The slot that all of its keys are in."""
        return self.part.slot if self.part is not None else key_slot(self.keys[0])

    @property
    def repeated(self) -> bool:
        """Whether an earlier try of this call may have got through."""
        return self.again_at >= 0 and self.args[self.again_at] == "1"


class Position(NamedTuple):
    """Where the journal stood when a script answered, and the server's clock (wall ms)."""

    seq: int
    durable_seq: int
    now_ms: int


def position(raw: list[Any]) -> Position:
    """Read the three numbers that follow OK in every reply."""
    return Position(raw[1], raw[2], raw[3])


def letters(raw: Any) -> str:
    """Read a codes string: one letter per job."""
    return raw.decode() if isinstance(raw, bytes) else str(raw)


def read_reply(call: Call[T], raw: Any, namespace: str) -> T:
    """Read a reply, or raise what its refusal word stands for.

    Raises NotReady, Rebuilding, Hold, Grace, Fenced, JournalForked.
    """
    status = raw[0]
    if status == b"OK":
        return call.read(raw)
    index = call.part.index if call.part else -1
    match status:
        case b"NOTREADY":
            raise NotReady(namespace)
        case b"REBUILDING":
            raise Rebuilding(RETRY_AFTER_S)
        case b"HOLD":
            raise Hold(index)
        case b"GRACE":
            raise Grace(index, int(raw[1]))
        case b"FENCED":
            raise Fenced(index, int(raw[1]))
        case b"FORK":
            raise JournalForked(index)
        case _:
            raise ValueError(f"script {call.script} answered {raw!r}")
