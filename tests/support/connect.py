"""redis-py's own clients for looking into servers, by the URLs that redjob takes."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

from redjob.store.settings import settings_from_url


def connect(url: str) -> Any:
    """Return a client of a server, of whom sentinels name, or of a cluster; typed as none of them."""
    settings = settings_from_url(url)
    seeds = settings.seeds
    if not seeds:
        return redis.Redis.from_url(url)
    if settings.topology == "sentinel":
        kind: Any = Sentinel  # untyped
        sentinels = kind([(seed.host, seed.port) for seed in seeds])
        return sentinels.master_for(settings.service)
    node: Any = ClusterNode  # untyped
    return RedisCluster(startup_nodes=[node(seed.host, seed.port) for seed in seeds])


def connect_async(url: str) -> Any:
    """Return the same for asyncio."""
    seeds = settings_from_url(url).seeds
    if not seeds:
        return redis.asyncio.Redis.from_url(url)
    nodes = [AsyncClusterNode(seed.host, seed.port) for seed in seeds]
    return AsyncRedisCluster(startup_nodes=nodes)


def connect_at(url: str, slot: int) -> Any:
    """Return a client of the one server that has a slot now."""
    client = connect(url)
    if not isinstance(client, RedisCluster):
        return client
    with client:
        node: Any = client.nodes_manager.slots_cache[slot][0]
        return redis.Redis(host=node.host, port=node.port)


def remove(client: Any, prefix: str) -> None:
    """Remove the keys that begin so, wherever they are."""
    with client.pipeline(transaction=False) as pipe:
        for key in client.scan_iter(f"{prefix}*", count=10_000):
            pipe.unlink(key)  # one by one: keys of different slots may not be in one command
        pipe.execute()


def connections(client: Any) -> list[dict[str, str]]:
    """Return what CLIENT LIST says of every connection to a server or to the primaries of a cluster."""
    if not isinstance(client, RedisCluster):
        found: list[dict[str, str]] = client.client_list()
        return found
    lists: Any = client.client_list(target_nodes=RedisCluster.PRIMARIES)
    return [one for some in lists.values() for one in some]
