"""Each server by itself, for `redjob doctor` and `redjob move`: who is there, and commands to one of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from redis import exceptions as rx

from redjob.calls.call import Arg
from redjob.errors import ServerUnsuitable, StoreUnavailable
from redjob.store.policy import ConnectFailed, nobody_knows, reason
from redjob.store.routes import Address, routes_for
from redjob.store.settings import StoreSettings
from redjob.store.sync_link import SyncLink

REPLY_S = 2.0  # a server that says nothing for so long is not waited for: a person waits


class Refusal(NamedTuple):
    """An error reply, in the server's own words."""

    text: str


class Servers:
    """Asks servers one by one, each on a connection of its own, and never tries again."""

    def __init__(self, settings: StoreSettings, *, reply_s: float = REPLY_S) -> None:
        self._settings = settings
        self._reply_s = reply_s
        rng = random.Random()
        self._routes = routes_for(settings.topology, settings.seeds, settings.service, rng)
        self._links: dict[Address, SyncLink] = {}

    @property
    def shown(self) -> str:
        """The URL, without its secrets."""
        return self._settings.shown

    def find(self) -> list[Address]:
        """Ask where the primaries are. Raises StoreUnavailable, ServerUnsuitable."""
        trouble: Exception | None = None
        for address in self._routes.candidates():
            try:
                answer = self._answer(address)
            except (ConnectFailed, ServerUnsuitable, rx.RedisError, OSError) as exc:
                trouble = exc
                continue
            if self._routes.learn(address, answer):
                break
            trouble = rx.ConnectionError(f"{address} does not know: {self._routes.unknown}")
        if not self._routes.primaries:
            raise _told(nobody_knows(trouble, self._settings.topology, self.shown), self.shown)
        return self._routes.primaries

    def of(self, slot: int) -> Address | None:
        """The primary of a slot, by what `find` learned; None for a slot that nobody serves."""
        return self._routes.of(slot)

    def named_by_sentinels(self) -> dict[Address, Address | None]:
        """Whom each Sentinel of the URL names; None for one that does not answer or knows of nobody."""
        found: dict[Address, Address | None] = {}
        for address in self._settings.seeds:
            try:
                answer = self._answer(address)
            except (ConnectFailed, ServerUnsuitable, rx.RedisError, OSError):
                answer = None
            found[address] = Address(answer[0].decode(), int(answer[1])) if answer else None
        return found

    def ask(self, address: Address, *commands: tuple[Arg, ...]) -> list[Any]:
        """Send commands in one write; an error reply is a Refusal in its place.

        Raises StoreUnavailable, ServerUnsuitable (credentials, certificate).
        """
        try:
            replies = self._link(address).exchange_all(commands)
        except (ConnectFailed, rx.RedisError, OSError) as exc:
            self._drop(address)
            raise _told(exc, self._settings.at(address).shown) from exc
        return [Refusal(_text(one)) if isinstance(one, Exception) else one for one in replies]

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._links):
            self._drop(address)

    def credentials(self) -> tuple[str, str] | None:
        """User and password for a server that another one is to connect to; None where none is set."""
        password = self._settings.options.get("password")
        if password is None:
            return None
        return str(self._settings.options.get("username") or "default"), str(password)

    def _answer(self, address: Address) -> Any:
        link = SyncLink(self._settings.asking(address), reply_timeout_s=REPLY_S)
        try:
            return link.exchange(self._routes.question)
        finally:
            link.close()

    def _link(self, address: Address) -> SyncLink:
        if address not in self._links:
            settings = self._settings.at(address)
            options = {"socket_connect_timeout": REPLY_S, **settings.options}
            settings = replace(settings, options=options)
            self._links[address] = SyncLink(settings, reply_timeout_s=self._reply_s)
        return self._links[address]

    def _drop(self, address: Address) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            link.close()


def refusals(replies: Sequence[Any]) -> list[str]:
    """The texts of what was refused."""
    return [one.text for one in replies if isinstance(one, Refusal)]


def _told(exc: BaseException, shown: str) -> BaseException:
    if isinstance(exc, ServerUnsuitable):
        return exc
    return StoreUnavailable(f"{shown}: {reason(exc)}", outcome="unknown")


def _text(exc: Exception) -> str:
    # redis-py cuts the first word off where it has a class for it, and that class says it.
    return f"{type(exc).__name__}: {exc}"
