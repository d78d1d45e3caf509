"""One partition on a real server: calls, whole-state comparison, a clock that tests set, rolling back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from redjob.calls import owner
from redjob.calls.owner import Fence
from redjob.keys import Keyspace
from redjob.partitions import quorum_tag
from redjob.store.namespace import open_query
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.clock import clock_key, clocked_scripts
from tests.support.connect import connect_at, remove
from tests.support.dump import Dumper, Journaled, State, Value, changes
from tests.support.invariants import violations
from tests.support.seed import Seeder

if TYPE_CHECKING:
    from types import TracebackType

    from redjob.calls.call import Call
    from redjob.calls.scripts import ScriptSet

T = TypeVar("T")
START_MS = 1_790_000_000_000
LEASE_MS = 30_000
TOKEN = Fence(1, "nonce")


class Ground:
    """An opened namespace of one partition; `scripts` are the ones with a clock unless given."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        depth_limit: str = "none",
        scripts: ScriptSet | None = None,
    ) -> None:
        self.namespace = namespace
        self.store = SyncStore(
            settings_from_url(url, deadline_s=5.0), namespace, scripts=scripts or clocked_scripts()
        )
        self.store.query(open_query(namespace, 1))
        self.keys: Keyspace = self.store.keys
        self.part = self.keys.parts[0]
        self.redis: Any = connect_at(url, self.part.slot)
        self.dump = Dumper(self.redis, self.part)
        self._seeder = Seeder(namespace)
        self._tags = 0
        self._scripts = scripts or clocked_scripts()
        self._now_ms = 0
        self.now_ms = START_MS
        self.run(
            owner.fence(
                self.part, TOKEN, incarnation="inc", depth_limit=depth_limit, grace_ms=LEASE_MS
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespace: shared servers stay small."""
        remove(self.redis, f"{self.namespace}:")
        self.redis.close()
        self.store.close()

    # the clock

    @property
    def now_ms(self) -> int:
        """What scripts take for the time, wall ms."""
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for tag in (self.part.tag, quorum_tag(0)):  # each script's own slot has its clock
            self.redis.set(clock_key(self.namespace, tag), now_ms)

    def advance(self, ms: int) -> None:
        """Let time pass for scripts."""
        self.now_ms += ms

    # calls

    def tag(self) -> str:
        """A request id, the same in every run."""
        self._tags += 1
        return f"{self._tags:016x}"

    def run(self, call: Call[T]) -> T:
        """Send a call."""
        return self.store.call(call)

    def raw(self, call: Call[Any], *, run_id: str | None = None) -> Any:
        """Send a call and return its reply unread; `run_id` as if read from another server."""
        if call.run_id_at >= 0:
            call.args[call.run_id_at] = self.run_id if run_id is None else run_id
        return self.redis.execute_command(*self._scripts.command(call, sha=False))

    def do(self, call: Call[T]) -> tuple[T, State]:
        """Send a call and return its reply with everything that it changed; all invariants hold after."""
        before = self.dump()
        reply = self.run(call)
        return reply, changes(before, self.check())

    def check(self) -> State:
        """Assert all invariants and return the state."""
        state = self.dump()
        broken = violations(state)
        assert not broken, "\n".join(broken)
        return state

    @property
    def run_id(self) -> str:
        """The run_id of the server."""
        return str(self.redis.info("server")["run_id"])

    # expectations

    @property
    def seq(self) -> int:
        """The number of the newest journal entry."""
        return int(self.redis.hget(self.part.meta, "seq") or 0)

    def journaled(self, op: str, tag: str, *lines: str, worker: str = "") -> dict[str, Value]:
        """What one journal entry adds, when it is the newest: to be part of expected changes."""
        seq = self.seq
        prev = self.redis.xrange(self.part.journal, f"{seq - 1}-0", f"{seq - 1}-0")
        prev_tag = prev[0][1][b"tag"].decode() if prev else ""
        entry = Journaled(op, tag, prev_tag, self.now_ms, lines, worker)
        return {f"journal/{seq}": entry, "meta/seq": str(seq), "meta/tag": tag}

    # rolling back

    def save(self) -> dict[bytes, bytes]:
        """All keys of the partition, to be put back by `restore` as a failover would."""
        keys: list[bytes] = self.redis.keys(f"{self.part.base}*")
        return {key: self.redis.dump(key) for key in keys}

    def restore(self, saved: dict[bytes, bytes]) -> None:
        """Take the partition back to where it was saved."""
        keys = self.redis.keys(f"{self.part.base}*")
        if keys:
            self.redis.delete(*keys)
        for key, value in saved.items():
            self.redis.restore(key, 0, value)
