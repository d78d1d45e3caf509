"""The examples on the page of formats are what the scripts do, on each server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.examples import Teller, Told
from tests.support.make_examples import PAGE, with_examples

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = pytest.mark.server("valkey", "redis")


def test_the_page_is_up_to_date(server: TestServer, ns: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = with_examples(page, Teller(server.url, ns).tell())
    assert made == page, "run python -m tests.support.make_examples"


def test_a_script_without_an_example_is_named() -> None:
    with pytest.raises(ValueError, match="no example of begin, cancel"):
        with_examples(PAGE.read_text(encoding="utf-8"), Told())


def test_a_page_that_has_lost_a_marker_is_an_error(server: TestServer, ns: str) -> None:
    told = Teller(server.url, ns).tell()
    with pytest.raises(ValueError, match="0 places for record"):
        with_examples("", told)
