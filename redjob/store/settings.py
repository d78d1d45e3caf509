"""How to reach Redis: from a URL or from a client that the user has already."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType] - untyped

from redjob.errors import InvalidArgument
from redjob.store.routes import HOME, Address
from redjob.store.url import check_url

DEADLINE_S = 30.0  # every call ends by then
REPLY_TIMEOUT_S = 5.0
Topology = Literal["single", "sentinel", "cluster"]
_PORTS = {"sentinel": 26379, "cluster": 6379}
_KEPT = (
    "host", "port", "db", "path", "username", "password", "credential_provider", "ssl_keyfile",
    "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_password",
    "ssl_check_hostname", "ssl_min_version", "socket_keepalive", "socket_connect_timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where Redis is and how long to wait for it.

    `reply_timeout_s` bounds one try, `deadline_s` a call with all its tries. `seeds` are whom to ask
    where everything is: nodes of a cluster, or the Sentinels of `service`, which are spoken to with
    `sentinel_options`.
    """

    kind: str  # tcp, tls or unix
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    shown: str = ""  # the URL with its secret taken out: what logs and errors may say
    reply_timeout_s: float = REPLY_TIMEOUT_S
    deadline_s: float = DEADLINE_S
    topology: Topology = "single"
    seeds: tuple[Address, ...] = ()
    service: str = ""
    sentinel_options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        # One try may not last longer than the call that it is of.
        object.__setattr__(self, "reply_timeout_s", min(self.reply_timeout_s, self.deadline_s))

    def at(self, address: Address) -> StoreSettings:
        """Return how to reach one server of many."""
        if address == HOME:
            return self
        options = {**self.options, "host": address.host, "port": address.port}
        return replace(self, options=options, shown=f"{self.shown} at {address}")

    def asking(self, address: Address) -> StoreSettings:
        """Return how to reach a server that is asked where things are."""
        if self.topology != "sentinel":
            return self.at(address)
        options = {**self.sentinel_options, "host": address.host, "port": address.port}
        return replace(self, options=options, shown=f"{self.shown} at {address}")


def redact(url: str) -> str:
    """Return the URL without its password and query: both can hold secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = "***@" if "@" in parts.netloc else ""
    return urlunsplit((parts.scheme, user + host, parts.path, "", ""))


def settings_from_url(url: str, *, deadline_s: float = DEADLINE_S) -> StoreSettings:
    """Read redis://, rediss:// or unix://, and redis+cluster:// and redis+sentinel:// (rediss+… for TLS).

    `decode_responses` and the like are left out on purpose. Raises InvalidArgument for anything else.
    """
    check_url(url)
    scheme, _, topology = urlsplit(url).scheme.partition("+")
    if topology in {"cluster", "sentinel"} and scheme in {"redis", "rediss"}:
        return _many(url, scheme, topology, deadline_s)
    kind = {"redis": "tcp", "rediss": "tls", "unix": "unix"}.get(urlsplit(url).scheme)
    if kind is None:
        raise _unreadable(url)
    return StoreSettings(kind, _parse(url, url), redact(url), deadline_s=deadline_s)


def _many(url: str, scheme: str, topology: Any, deadline_s: float) -> StoreSettings:
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    seeds = tuple(_address(url, host, _PORTS[topology]) for host in hosts.split(","))
    path = [piece for piece in parts.path.split("/") if piece]
    service = ""
    if topology == "sentinel":
        if not path:
            raise InvalidArgument(
                "redis_url",
                f"names no service ({redact(url)})",
                "use redis+sentinel://host:26379,host2:26379/mymaster",
            )
        service = path.pop(0)
    elif path and path != ["0"]:
        raise InvalidArgument(
            "redis_url", f"has a path ({redact(url)})", "a cluster has db 0 only: leave it out"
        )
    query = dict(parse_qsl(parts.query))
    own = {
        name: query.pop(f"sentinel_{name}")
        for name in ("username", "password")
        if f"sentinel_{name}" in query
    }
    plain = urlunsplit((scheme, f"{user}{at}{seeds[0]}", "/".join(path), urlencode(query), ""))
    options = _parse(plain, url)
    shared = {name: value for name, value in options.items() if name.startswith("ssl")}
    return StoreSettings(
        "tls" if scheme == "rediss" else "tcp",
        options,
        redact(url),
        deadline_s=deadline_s,
        topology=topology,
        seeds=seeds,
        service=service,
        sentinel_options={**shared, **own},
    )


def _address(url: str, host: str, port: int) -> Address:
    try:
        parts = urlsplit(f"//{host}")
        if not parts.hostname:
            raise _unreadable(url)
        return Address(parts.hostname, parts.port or port)
    except ValueError as exc:
        raise _unreadable(url) from exc


def _parse(url: str, given: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call] # redis-py has no types here
    except ValueError as exc:
        raise _unreadable(given) from exc
    return _keep(found)


def _unreadable(url: str) -> InvalidArgument:
    return InvalidArgument(
        "redis_url",
        f"cannot be read ({redact(url)})",
        "use redis://host:6379/0, rediss://, unix://, redis+cluster://host:7000,host2:7000 or "
        "redis+sentinel://host:26379,host2:26379/mymaster",
    )


def settings_from_client(client: object, *, deadline_s: float = DEADLINE_S) -> StoreSettings:
    """Read how a user's own redis client connects; its connections and decoding stay its own.

    Raises InvalidArgument for an object that is not a redis-py client of one server.
    """
    pool = getattr(client, "connection_pool", None)
    found = getattr(pool, "connection_kwargs", None)
    if not isinstance(found, dict):
        raise InvalidArgument(
            "redis", f"is a {type(client).__name__}", "pass a URL or a redis.Redis client"
        )
    options: dict[str, Any] = _keep(found)  # pyright: ignore[reportUnknownArgumentType]
    kind = "unix" if "path" in options else "tcp"
    if "SSL" in getattr(pool, "connection_class", type(None)).__name__:
        kind = "tls"
    shown = f"{kind}://{options.get('path') or options.get('host')}:{options.get('port', '')}"
    return StoreSettings(kind, options, shown, deadline_s=deadline_s)


def _keep(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in _KEPT if found.get(name) is not None}
