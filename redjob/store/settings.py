"""How to reach Redis: from a URL or from a client that the user has already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType] - untyped

from redjob.errors import InvalidArgument

DEADLINE_S = 30.0  # every call ends by then
_LATER = ("redis+cluster", "redis+sentinel")
_KEPT = (
    "host", "port", "db", "path", "username", "password", "credential_provider", "ssl_keyfile",
    "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_password",
    "ssl_check_hostname", "ssl_min_version", "socket_keepalive", "socket_connect_timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where Redis is and how long to wait for it.

    `reply_timeout_s` bounds one try, `deadline_s` a call with all its tries.
    """

    kind: str  # tcp, tls or unix
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    shown: str = ""  # the URL with its secret taken out: what logs and errors may say
    reply_timeout_s: float = 5.0
    deadline_s: float = DEADLINE_S


def redact(url: str) -> str:
    """Return the URL without its password and query: both can hold secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = "***@" if "@" in parts.netloc else ""
    return urlunsplit((parts.scheme, user + host, parts.path, "", ""))


def settings_from_url(url: str, *, deadline_s: float = DEADLINE_S) -> StoreSettings:
    """Read redis://, rediss:// or unix://; `decode_responses` and the like are left out on purpose.

    Raises InvalidArgument for anything else.
    """
    scheme = urlsplit(url).scheme
    if scheme in _LATER:
        raise InvalidArgument("redis_url", f"{scheme}:// is not supported yet", "use redis://")
    try:
        found: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call] # redis-py has no types here
    except ValueError as exc:
        raise InvalidArgument(
            "redis_url", f"cannot be read ({redact(url)})", "use redis://host:6379/0"
        ) from exc
    kind = {"redis": "tcp", "rediss": "tls", "unix": "unix"}[scheme]
    return StoreSettings(kind, _keep(found), redact(url), deadline_s=deadline_s)


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
