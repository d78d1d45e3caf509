"""How to reach Redis: topologies, a client of the user's own, and what may be shown of a URL."""

from __future__ import annotations

import pytest
from redis import Redis

from redjob.errors import InvalidArgument
from redjob.store.routes import HOME, Address
from redjob.store.settings import redact, settings_from_client, settings_from_url

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "kind", "topology"),
    [
        ("redis://h", "tcp", "single"),
        ("rediss://h", "tls", "single"),
        ("unix:///run/r.sock", "unix", "single"),
        ("redis+cluster://h:7000,h2", "tcp", "cluster"),
        ("rediss+sentinel://h,h2:1/main", "tls", "sentinel"),
    ],
)
def test_the_scheme_says_how_and_what(url: str, kind: str, topology: str) -> None:
    found = settings_from_url(url, deadline_s=3.0)
    assert (found.kind, found.topology, found.deadline_s) == (kind, topology, 3.0)


@pytest.mark.parametrize(
    "url", ["http://h", "h:6379", "", "redis+ring://h", "unix+cluster://h", "redis://h:port"]
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        settings_from_url(url)
    assert caught.value.field == "redis_url"


def test_a_cluster_is_asked_at_its_seeds() -> None:
    found = settings_from_url("redis+cluster://u:p@h:7000,h2,[::1]:7002")
    assert found.seeds == (Address("h", 7000), Address("h2", 6379), Address("::1", 7002))
    there = found.at(Address("other", 1))
    assert (there.options["host"], there.options["port"]) == ("other", 1)
    assert (there.options["username"], there.options["password"]) == ("u", "p")
    assert found.asking(Address("other", 1)) == there


def test_sentinels_have_credentials_of_their_own() -> None:
    url = "redis+sentinel://u:p@h,h2:1/main/3?sentinel_password=x"
    found = settings_from_url(url)
    assert (found.service, found.seeds) == ("main", (Address("h", 26379), Address("h2", 1)))
    assert found.options["db"] == 3
    asked = found.asking(found.seeds[1])
    assert asked.options == {"password": "x", "host": "h2", "port": 1}
    primary = found.at(Address("p", 6379))
    assert (primary.options["password"], primary.options["host"]) == ("p", "p")


def test_sentinels_without_a_service_and_clusters_with_a_db_are_refused() -> None:
    for url in ("redis+sentinel://h", "redis+cluster://h/1"):
        with pytest.raises(InvalidArgument):
            settings_from_url(url)


def test_the_one_server_is_reached_as_it_was_told() -> None:
    found = settings_from_url("redis://h:1/2")
    assert found.at(HOME) is found


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@h:1/2",
        f"redis://user:{SECRET}@h:1/2",
        f"redis://h:1/2?password={SECRET}",
        f"redis+sentinel://h/main?sentinel_password={SECRET}",
        f"redis+cluster://u:{SECRET}@h,h2",
    ],
)
def test_no_secret_is_shown(url: str) -> None:
    found = settings_from_url(url)
    assert SECRET not in found.shown
    assert SECRET not in found.at(Address("o", 1)).shown
    assert SECRET in str(found.options) + str(found.sentinel_options)


def test_what_is_shown_still_names_the_server() -> None:
    assert redact("rediss://user:pass@h:1/2?a=b") == "rediss://***@h:1/2"
    assert redact("redis://h") == "redis://h"


def test_an_unreadable_url_does_not_show_its_secret() -> None:
    with pytest.raises(InvalidArgument) as caught:
        settings_from_url(f"redis://:{SECRET}@h:notaport/0")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "kind", "options"),
    [
        ("redis://u:p@h:1/2", "tcp", {"host": "h", "port": 1, "db": 2}),
        ("rediss://h:1", "tls", {"host": "h", "port": 1}),
        ("unix:///run/r.sock", "unix", {"path": "/run/r.sock"}),
    ],
)
def test_a_client_of_the_users_own_is_only_looked_at(
    url: str, kind: str, options: dict[str, object]
) -> None:
    with Redis.from_url(url, decode_responses=True, socket_timeout=1) as client:
        found = settings_from_client(client)
    assert found.kind == kind
    assert options.items() <= found.options.items()
    assert not found.options.keys() & {"decode_responses", "socket_timeout"}
    assert "p@" not in found.shown


@pytest.mark.parametrize("client", [None, "redis://h", 7], ids=repr)
def test_what_is_no_client_is_refused(client: object) -> None:
    with pytest.raises(InvalidArgument, match=type(client).__name__):
        settings_from_client(client)
