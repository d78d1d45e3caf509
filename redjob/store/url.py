"""What a Redis URL may say: whatever would be silently ignored, or mean db 0, is refused before it is read."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redjob.errors import InvalidArgument

# What redjob hands on to the connection.
_TLS = frozenset({
    "ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path",
    "ssl_password", "ssl_check_hostname", "ssl_min_version",
})  # fmt: skip
_USED = _TLS | {"db", "username", "password", "socket_keepalive", "socket_connect_timeout"}
# What other clients of the same URL may need, and redjob decides by itself.
_OURS = frozenset({
    "decode_responses", "encoding", "encoding_errors", "protocol", "client_name", "max_connections",
    "health_check_interval", "retry_on_timeout", "socket_timeout", "timeout",
})  # fmt: skip
_SENTINEL = frozenset({"sentinel_username", "sentinel_password"})
_SCHEMES = frozenset({"redis", "rediss", "unix"})


def check_url(url: str) -> None:
    """Look at path, query and fragment of a URL; host, port and the rest are the parser's to judge.

    Raises InvalidArgument, which names the part and never a secret.
    """
    parts = urlsplit(url)
    scheme, _, topology = parts.scheme.partition("+")
    if scheme not in _SCHEMES:
        return
    if "@" in parts.path + parts.query + parts.fragment and "@" not in parts.netloc:
        # Not shown: what follows the / ? or # may be half a password.
        raise _refused("its user or password holds a / ? or #", "write %2F, %3F or %23 there")
    if parts.fragment:
        raise _refused("what follows the # means nothing", "leave it out, or write %23 for a #")
    named = _check_query(parts, scheme, topology)
    if scheme == "unix":
        _check_socket(parts)
    else:
        _check_path(parts, topology, db_named="db" in named)


def _check_query(parts: SplitResult, scheme: str, topology: str) -> set[str]:
    usable = _USED | (_SENTINEL if topology == "sentinel" else frozenset[str]())
    named: set[str] = set()
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in named:
            raise _refused(f"names the parameter {name} twice", "keep one")
        named.add(name)
        if name not in usable | _OURS:
            known = ", ".join(sorted(usable))
            raise _refused(f"has an unknown parameter {name!r}", f"leave it out; known are {known}")
        if name in _TLS and scheme != "rediss":
            raise _refused(f"asks for {name} without TLS", "use rediss://")
        if name == "db":
            _check_db(value, f"db={value}")
    return named


def _check_path(parts: SplitResult, topology: str, *, db_named: bool) -> None:
    path = unquote(parts.path).removeprefix("/")
    if topology == "sentinel":
        path = path.partition("/")[2]  # after the service
    if not path:
        return
    _check_db(path, f"/{path}")
    if db_named:
        raise _refused(f"names a db twice, as /{path} and as a parameter", "keep one")


def _check_db(text: str, shown: str) -> None:
    if not (text.isascii() and text.isdigit()):
        raise _refused(
            f"its {shown} is no db number",
            "end it in /0 or another number, and name the application by the namespace",
        )


def _check_socket(parts: SplitResult) -> None:
    host = parts.netloc.rpartition("@")[2]
    if host or not parts.path:
        raise _refused(
            "names no absolute path", "use unix:///path/to/redis.sock, with three slashes"
        )


def _refused(problem: str, remedy: str) -> InvalidArgument:
    return InvalidArgument("redis_url", problem, remedy)
