"""What stands inside a line of the journal: days, records and pasts as lists show them; under fold."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Annotated

import msgspec

from redjob.codec import decoder_of
from redjob.model import DEFAULT_PRIORITY, DEFAULT_TENANT

_SOUND = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12} (\d{4}-\d\d-\d\d|-|) [A-Z]"
    r"(?: \d{1,9}(?: \d{1,15}(?: [^ ]{0,128}(?: .*)?)?)?)?",
    re.DOTALL,
)


class Head(msgspec.Struct, frozen=True):
    """What lists of jobs show, out of a record."""

    created: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    task: str = ""
    tenant: str = DEFAULT_TENANT
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = DEFAULT_PRIORITY


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended, out of a past."""

    last: Annotated[str, msgspec.Meta(pattern="^[a-z_]+$")] | None = None
    error: msgspec.Raw = msgspec.Raw()

    @property
    def error_text(self) -> str | None:
        """The error as JSON."""
        return bytes(self.error).decode() or None


NO_HEAD = Head()
_NO_END = Ended()
_decode_head = decoder_of(Head)
_decode_end = decoder_of(Ended)


def head_of(doc: str) -> Head:
    """Read a record; a damaged one shows nothing, and its worker judges it."""
    try:
        head = _decode_head(doc.encode())
    except msgspec.DecodeError:
        return NO_HEAD
    return NO_HEAD if "\0" in head.task or "\0" in head.tenant else head


def end_of(past: str | None) -> Ended:
    """Read a past."""
    try:
        return _decode_end(past.encode()) if past else _NO_END
    except msgspec.DecodeError:
        return _NO_END


@lru_cache(maxsize=4096)
def day_of(home: str) -> date | None:
    """The day that a line names; None for one whose record is gone. Raises ValueError."""
    return date.fromisoformat(home) if len(home) > 1 else None


def is_sound(line: str) -> bool:
    """Whether a line is one that Postgres can take."""
    found = _SOUND.fullmatch(line)
    try:
        return found is not None and (day_of(found[1]), True)[1]
    except ValueError:
        return False


def sound_text(raw: bytes) -> str:
    """Bytes as text that Postgres can take: it has no NUL, and nothing that is not UTF-8."""
    return raw.decode(errors="replace").replace("\0", "\ufffd")
