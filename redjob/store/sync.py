"""The blocking store: one call at a time on a connection of its own, threads and forks welcome."""

from __future__ import annotations

import os
import random
from typing import Any, NamedTuple, TypeVar

from redis import exceptions as rx

from redjob.calls.call import Arg, Call, read_reply
from redjob.calls.reads import Query
from redjob.calls.scripts import ScriptSet
from redjob.clock import Clock, SystemClock
from redjob.errors import NotReplicated
from redjob.keys import Keyspace, PartitionKeys
from redjob.store.facts import ServerFacts, facts_query
from redjob.store.namespace import keyspace_from, namespace_query
from redjob.store.policy import ConnectFailed, Tries, note, read_with
from redjob.store.routes import routes_for
from redjob.store.settings import StoreSettings
from redjob.store.sync_link import SyncLink
from redjob.store.sync_nodes import LONGEST_BLOCK_S, SyncNodes, SyncPool

T = TypeVar("T")


class Sent(NamedTuple):
    """A call that is under way: on which connection, and whose that is."""

    pool: SyncPool
    link: SyncLink


class SyncStore:
    """Sends calls and queries of one namespace. Safe to share between threads, and over a fork."""

    def __init__(
        self,
        settings: StoreSettings,
        namespace: str = "redjob",
        *,
        partitions: int | None = None,
        clock: Clock | None = None,
        scripts: ScriptSet | None = None,
    ) -> None:
        self.settings = settings
        self.namespace = namespace
        self._asked = partitions
        self._clock = clock or SystemClock()
        self._scripts = scripts or ScriptSet()
        self._pid = os.getpid()
        self._rng = random.Random()
        routes = routes_for(settings.topology, settings.seeds, settings.service, self._rng)
        self._nodes = SyncNodes(settings, self._clock, routes)
        self._keyspace: Keyspace | None = None

    @property
    def keys(self) -> Keyspace:
        """The namespace's keys; the number of partitions is read from Redis at first use.

        Raises NotReady when no scheduler has opened the namespace, PartitionMismatch for another P.
        """
        if self._keyspace is None:
            found = self.query(namespace_query(self.namespace))
            self._keyspace = keyspace_from(self.namespace, found, self._asked)
        return self._keyspace

    def now_ms(self, part: PartitionKeys | None = None) -> int:
        """The clock of a partition's server (of any one for None) as last measured, wall ms."""
        return self._nodes.now_ms(part.slot if part else None)

    @property
    def is_one_server(self) -> bool:
        """Whether one command may read keys of all partitions: everywhere but on a cluster."""
        return self.settings.topology != "cluster"

    def facts(self) -> list[ServerFacts]:
        """Ask each server that holds jobs about itself. Raises StoreUnavailable."""
        return self.query_each(facts_query())

    def query_each(self, query: Query[T]) -> list[T]:
        """Send a read without keys to every server that holds jobs. Raises StoreUnavailable."""
        first = self.query(query)  # waits until one is there
        pools = self._nodes.all()
        if len(pools) == 1:
            return [first]
        try:
            return [query.read(pool.exchange_all(query.commands)) for pool in pools]
        except Exception as exc:
            note(self._nodes.routes, exc)
            self._tries("read", 0.0, follow_moves=False).after(exc)
            raise

    def call(
        self, call: Call[T], *, deadline_s: float | None = None, sent: Sent | None = None
    ) -> T:
        """Send a call until it is answered; `sent` is what `send` returned for its first try.

        Raises what its refusal stands for (`read_reply`), StoreFull, StoreUnavailable.
        """
        tries: Tries | None = None
        while True:
            try:
                raw = self._raw(call, sent)
            except Exception as exc:  # noqa: BLE001 - the policy raises what it does not know
                sent = None
                tries = tries or self._tries(call.script, deadline_s)
                self._wait(tries, exc)
                if tries.unknown and call.again_at >= 0:
                    call.args[call.again_at] = "1"
                continue
            reply: T = read_with(call.script, read_reply, call, raw, self.namespace)
            return reply

    def send(self, call: Call[Any]) -> Sent | None:
        """Send a call and do not wait: `call` reads the reply, and tries again what failed here."""
        try:
            return self._send(call)
        except ConnectFailed:
            return None
        except (rx.RedisError, OSError):
            if call.again_at >= 0:
                call.args[call.again_at] = "1"  # nobody knows how much of it was sent
            return None

    def query(self, query: Query[T], *, deadline_s: float | None = None) -> T:
        """Send plain reads in one pipeline. Raises StoreUnavailable."""
        tries: Tries | None = None
        while True:
            try:
                self._notice_fork()
                replies = self._nodes.commands(query.slot, query.commands) if query.commands else []
            except Exception as exc:  # noqa: BLE001 - as above
                tries = tries or self._tries("read", deadline_s)
                self._wait(tries, exc)
                continue
            return read_with("read", query.read, replies)

    def block(self, part: PartitionKeys, command: tuple[Arg, ...], block_s: float) -> Any:
        """Send a command on keys of a partition that waits up to block_s (≤ LONGEST_BLOCK_S), once.

        On a connection that no call shares, and that waits for a reply longer than the command
        blocks. Raises StoreUnavailable.
        """
        assert block_s <= LONGEST_BLOCK_S, "the connection would give up before the server"
        try:
            self._notice_fork()
            pool = self._nodes.at(part.slot)
            link = pool.take_blocking()
            try:
                reply = link.exchange(command)
            except BaseException:
                link.close()
                raise
        except Exception as exc:
            note(self._nodes.routes, exc)
            self._tries(str(command[0]), 0.0, follow_moves=False).after(exc)
            raise
        pool.blocking.append(link)
        return reply

    def close(self) -> None:
        """Close idle connections; a later call opens new ones."""
        self._nodes.close()

    def _raw(self, call: Call[Any], sent: Sent | None) -> Any:
        try:
            return self._read(call, sent or self._send(call))
        except rx.AskError as exc:
            if not isinstance(exc, rx.MovedError):
                return self._nodes.asked(exc, call, self._scripts)
            note(self._nodes.routes, exc)
            raise
        except Exception as exc:
            note(self._nodes.routes, exc)
            raise

    def _send(self, call: Call[Any]) -> Sent:
        self._notice_fork()
        pool = self._nodes.at(call.slot)
        link = pool.take()
        if call.run_id_at >= 0:
            call.args[call.run_id_at] = link.run_id
        try:
            link.send(self._scripts.command(call, sha=True))
        except BaseException as exc:
            pool.failed(link, exc)
            raise
        return Sent(pool, link)

    def _read(self, call: Call[Any], sent: Sent) -> Any:
        pool, link = sent
        try:
            try:
                raw = link.read()
            except rx.NoScriptError:
                raw = link.exchange(self._scripts.command(call, sha=False))
            got = pool.wait(link, call.replicas) if call.replicas else 0
        except BaseException as exc:
            pool.failed(link, exc)
            raise
        pool.give(link)
        if got < call.replicas:
            raise NotReplicated(got, call.replicas)
        return raw

    def _notice_fork(self) -> None:
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._nodes.notice_fork()

    def _tries(self, what: str, deadline_s: float | None, *, follow_moves: bool = True) -> Tries:
        wait_s = self.settings.deadline_s if deadline_s is None else deadline_s
        limit = self._clock.monotonic() + wait_s
        return Tries(
            what, self.settings.shown, limit, self._clock, self._rng, follow_moves=follow_moves
        )

    def _wait(self, tries: Tries, exc: BaseException) -> None:
        delay_s = tries.after(exc)
        self._clock.sleep(delay_s)
