"""The whole state of a partition, read in one step and flattened, so that tests compare all of it.

A state maps a name to a value. Names are keys without their base; what a collection holds has a
name of its own: `due:q/<id>` is a score, `runs/<id>` a field. Entries of work streams are named
e1, e2, ... as they are seen, since their ids hold the time; journal entries are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from redis import Redis

    from redjob.keys import PartitionKeys

GONE = None  # in changes: the name is not there any more

# One script, so that the snapshot is of one moment.
_READ = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local value, pending
  if kind == 'string' then value = redis.call('GET', key)
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  else
    value = redis.call('XRANGE', key, '-', '+')
    local groups = redis.call('XINFO', 'GROUPS', key)
    if #groups > 0 then pending = redis.call('XPENDING', key, 'workers', '-', '+', 10000) end
  end
  out[#out + 1] = { key, kind, value, redis.call('PTTL', key), pending or false }
end
return out
"""


class Entry(NamedTuple):
    """An entry of a work stream; one with other fields stands in a state as a plain tuple."""

    id: str
    doc: str


class Journaled(NamedTuple):
    """An entry of the journal, its lines as they are."""

    op: str
    tag: str
    prev: str
    at: int
    lines: tuple[str, ...]
    worker: str = ""
    epoch: str = "1"


class Expiring(NamedTuple):
    """A string that the server drops by itself."""

    value: str


Value = str | int | float | tuple[str, ...] | Entry | Journaled | Expiring | None
State = dict[str, Value]


class Dumper:
    """Reads states; it remembers the names of entries, so that two dumps can be compared."""

    def __init__(self, redis: Redis, part: PartitionKeys) -> None:
        self._redis = redis
        self._part = part
        self._base = part.base
        self._script = redis.register_script(_READ)
        self._names: dict[str, str] = {}

    def __call__(self) -> State:
        """The state of the partition now."""
        state: State = {}
        rows: list[Any] = self._script(keys=[self._part.meta], args=[f"{self._base}*"])
        read = [(_text(key)[len(self._base) :], *rest) for key, *rest in rows]
        # streams first: their entries get names before `dispatched` speaks of them
        for name, kind, value, ttl_ms, pending in sorted(read, key=lambda row: row[1] != b"stream"):
            self._flatten(state, name, kind.decode(), value, ttl_ms, pending)
        return state

    def entry(self, stream_id: str) -> str:
        """The name of a stream entry."""
        return self._names.setdefault(stream_id, f"e{len(self._names) + 1}")

    def stream_id(self, entry: str) -> str:
        """The stream id behind the name of an entry."""
        return next(known for known, name in self._names.items() if name == entry)

    def _flatten(
        self, state: State, name: str, kind: str, value: Any, ttl_ms: int, pending: Any
    ) -> None:
        if kind == "string":
            state[name] = _text(value) if ttl_ms < 0 else Expiring(_text(value))
        elif kind == "hash":
            for field, content in _pairs(value):
                state[f"{name}/{field}"] = self._field(name, content)
        elif kind == "zset":
            for member, score in _pairs(value):
                state[f"{name}/{member}"] = _number(score)
        elif kind == "list":
            state[name] = len(value)
        elif kind == "set":
            state[name] = tuple(sorted(map(_text, value)))
        elif name == "journal":
            for entry_id, fields in value:
                state[f"journal/{_text(entry_id).removesuffix('-0')}"] = _journaled(fields)
        else:
            self._flatten_stream(state, name, value, pending)

    def _flatten_stream(self, state: State, name: str, value: Any, pending: Any) -> None:
        ids = [_text(entry_id) for entry_id, _ in value]
        for entry_id, (_, fields) in zip(ids, value, strict=True):
            texts = tuple(map(_text, fields))
            whole = texts[::2] == ("id", "doc")
            state[f"{name}/{self.entry(entry_id)}"] = Entry(*texts[1::2]) if whole else texts
        if pending:
            state[f"{name}/pending"] = tuple(self.entry(_text(row[0])) for row in pending)

    def _field(self, name: str, content: str) -> str:
        return self.entry(content) if name == "dispatched" else content


def changes(before: State, after: State) -> State:
    """What is new or other in `after`, and GONE for what is there no more."""
    changed = {name: value for name, value in after.items() if before.get(name, GONE) != value}
    return changed | {name: GONE for name in before if name not in after}


def _journaled(fields: list[bytes]) -> Journaled:
    found = dict(_pairs(fields))
    lines = tuple(found["r"].split("\n")) if found["r"] else ()
    return Journaled(
        found["op"],
        found["tag"],
        found["prev"],
        int(found["at"]),
        lines,
        found.get("worker", ""),
        found["epoch"],
    )


def _pairs(flat: list[bytes]) -> list[tuple[str, str]]:
    return [(_text(flat[i]), _text(flat[i + 1])) for i in range(0, len(flat), 2)]


def _number(score: str) -> int | float:
    number = float(score)
    return int(number) if number.is_integer() else number


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
