"""Redis URLs: what is read from them, and that nothing in them is passed over in silence."""

from __future__ import annotations

import pytest

from redjob.errors import InvalidArgument
from redjob.store.settings import settings_from_url


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://localhost", {"host": "localhost"}),
        ("redis://localhost/", {"host": "localhost"}),
        ("redis://h:7000/3", {"host": "h", "port": 7000, "db": 3}),
        ("redis://h?db=3", {"host": "h", "db": 3}),
        ("redis://u:p%2Fw%23%40@h/0", {"host": "h", "username": "u", "password": "p/w#@", "db": 0}),
        ("redis://h?decode_responses=True&protocol=3", {"host": "h"}),
        ("rediss://h/1?ssl_cert_reqs=none", {"host": "h", "db": 1, "ssl_cert_reqs": "none"}),
        ("redis+sentinel://h/mymaster/3", {"host": "h", "port": 26379, "db": 3}),
        ("unix:///run/redis.sock?db=2", {"path": "/run/redis.sock", "db": 2}),
        ("unix://u:p@/run/r.sock", {"path": "/run/r.sock", "username": "u", "password": "p"}),
    ],
)
def test_what_a_url_says_is_taken(url: str, options: dict[str, object]) -> None:
    assert settings_from_url(url).options == options


@pytest.mark.parametrize(
    ("url", "problem", "remedy"),
    [
        ("redis://h/billing", "its /billing is no db number", "/0 or another number"),
        ("redis://h/-1", "its /-1 is no db number", "/0"),
        ("redis://h/1_0", "its /1_0 is no db number", "/0"),
        ("redis://h/0/1", "its /0/1 is no db number", "/0"),
        ("redis://h/0?db=1", "names a db twice", "keep one"),
        ("redis://h?db=one", "its db=one is no db number", "/0"),
        ("redis://h?db=", "its db= is no db number", "/0"),
        ("redis://h?db=1&db=2", "names the parameter db twice", "keep one"),
        ("redis://h?namespace=a", "unknown parameter 'namespace'", "known are db,"),
        ("redis://h?ssl_ca_certs=/ca.pem", "ssl_ca_certs without TLS", "use rediss://"),
        ("redis://h/0#1", "what follows the #", "leave it out"),
        ("redis://:12/34@h", "its user or password holds", "%2F"),
        ("redis://:12?34@h", "its user or password holds", "%3F"),
        ("redis://:12#34@h", "its user or password holds", "%23"),
        ("unix://run/redis.sock", "names no absolute path", "three slashes"),
        ("unix://", "names no absolute path", "three slashes"),
        ("redis+sentinel://h/mymaster/x", "its /x is no db number", "/0"),
        (
            "redis+sentinel://h/mymaster?colour=red",
            "unknown parameter 'colour'",
            "sentinel_password",
        ),
        ("redis+cluster://h,h2/x", "its /x is no db number", "/0"),
        (
            "redis+cluster://h,h2?sentinel_password=x",
            "unknown parameter 'sentinel_p",
            "leave it out",
        ),
    ],
)
def test_what_would_be_passed_over_in_silence_is_refused(
    url: str, problem: str, remedy: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        settings_from_url(url)
    assert caught.value.field == "redis_url"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert "34" not in str(caught.value), "half a password"
