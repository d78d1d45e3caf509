"""`redjob doctor` where several servers stand together: one that is away, uneven, restarted or cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.cli.root import DONE, FAILED
from tests.flow.sweeping import staged
from tests.flow.test_cli_doctor import doctor, everybody_is_there
from tests.support.processes import wait_until
from tests.support.sentinel import SERVICE

if TYPE_CHECKING:
    from tests.support.servers import OwnClusterFactory, OwnSentinelFactory

pytestmark = pytest.mark.anyio


async def test_a_cluster_is_looked_at_primary_by_primary(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    first, second, third = nodes.primaries()
    async with staged(nodes.url, ns, partitions=8) as stage:
        await everybody_is_there(stage)
        ran, found = doctor(nodes.url, ns)
        assert ran.code == DONE, ran
        assert found["slots"]["detail"] == "all 16384 have a primary"
        assert found["spread"]["status"] == found["quorum"]["status"] == "ok"
        assert found["replicas"]["detail"] == "1"
        assert found["cluster-node-timeout"] == {
            "name": "cluster-node-timeout",
            "status": "ok",
            "detail": "2000 ms",
        }
        assert found["cluster-require-full-coverage"]["status"] == "ok"

        second.redis.config_set("cluster-node-timeout", 15000)
        second.redis.config_set("maxmemory-policy", "allkeys-lru")
        third.redis.config_set("cluster-require-full-coverage", "yes")
        third.redis.config_set("min-replicas-to-write", 2)
        ran, found = doctor(nodes.url, ns)
        assert ran.code == FAILED
        assert found["cluster-node-timeout"]["detail"].startswith(f"{second.address}: 15000 ms")
        assert found["eviction"]["status"] == "fail"
        assert found["eviction"]["detail"].startswith(f"{second.address}: allkeys-lru")
        assert found["cluster-require-full-coverage"]["detail"].startswith(f"{third.address}: yes")
        assert "every write is refused" in found["min-replicas-to-write"]["detail"]
        assert found["version"]["status"] == "ok"
        assert first.address not in found["eviction"]["detail"]


async def test_a_primary_that_came_back_holds_its_own_partitions_only(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with staged(nodes.url, ns, partitions=8) as stage:
        await everybody_is_there(stage)
        moved = nodes.primary_of(stage.store.keys.parts[0].slot)
        held = [
            part.index for part in stage.store.keys.parts if nodes.primary_of(part.slot) is moved
        ]
        nodes.fail_over(moved)
        nodes.wait_healthy()
        ran, found = doctor(nodes.url, ns)
        assert ran.code == FAILED
        told = f"partition {', '.join(map(str, held))} on hold"
        assert found["partitions"]["detail"].startswith(told)


@pytest.mark.solo
async def test_a_primary_that_is_away_does_not_hide_the_others(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster(primaries=3)
    async with staged(nodes.url, ns, partitions=8) as stage:
        await everybody_is_there(stage)
        gone = nodes.primary_of(stage.store.keys.parts[-1].slot)
        for replica in nodes.replicas_of(gone):
            replica.kill()
        gone.kill()
        ran, found = doctor(nodes.url, ns)
        assert ran.code == FAILED
        assert found["primaries"]["detail"] == f"no answer from {gone.address}"
        assert "is away" in found["partitions"]["detail"]
        assert found["version"]["status"] == "ok"
        assert found["owners"]["status"] == "ok", found  # 3 of 5 quorum keys can be read


async def test_two_primaries_are_warned_of_their_quorum_keys(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster(primaries=2)
    ran, found = doctor(nodes.url, ns)
    assert ran.code == FAILED  # nobody has opened the namespace
    assert found["quorum"]["status"] == "warn"
    assert "no scheduler works while it is away" in found["quorum"]["detail"]


async def test_sentinels_are_counted_and_must_agree(
    own_sentinel: OwnSentinelFactory, ns: str
) -> None:
    servers = own_sentinel()
    primary = servers.primary()
    assert primary is not None
    async with staged(primary.url, ns, partitions=2) as stage:
        await everybody_is_there(stage)
        ran, found = doctor(servers.url, ns)
        assert ran.code == DONE, ran
        assert found["replicas"]["detail"] == "1"
        assert found["sentinels"]["status"] == "ok"
        assert found["sentinels"]["detail"].startswith("3 of 3 name 127.0.0.1:")
        servers.sentinels[0].kill()
        ran, found = doctor(servers.url, ns)
        assert ran.code == DONE
        assert found["sentinels"]["status"] == "warn"
        assert "2 of 3 name" in found["sentinels"]["detail"]
        one = f"redis+sentinel://127.0.0.1:{servers.sentinels[1].port}/{SERVICE}"
        assert "name 3 or more" in doctor(one, ns)[1]["sentinels"]["detail"]
        replica = next(one for one in servers.servers if one is not primary)
        replica.kill()
        wait_until(
            lambda: doctor(servers.url, ns)[1]["replicas"]["status"] == "warn",
            within_s=10,
            what="the replica is missed",
        )
