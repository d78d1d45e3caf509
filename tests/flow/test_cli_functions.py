"""`redjob functions load` on a cluster: whichever server holds a partition can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls.scripts import script_names
from tests.flow.commands import redjob

if TYPE_CHECKING:
    from tests.support.servers import TestServer


@pytest.mark.server("cluster")
def test_every_primary_gets_the_library(server: TestServer) -> None:
    ran = redjob("functions", "load", "--json", "--redis-url", server.url)
    assert ran.code == 0
    primaries = server.cluster.primaries()
    assert ran.objects[0]["servers"] == len(primaries)
    for node in primaries:
        found: Any = node.command("FUNCTION", "LIST", "LIBRARYNAME", "redjob")
        assert len(found) == 1
    told = redjob("functions", "load", "--redis-url", server.url).out
    assert f"loaded {len(script_names())} functions into {len(primaries)} server(s)" in told
