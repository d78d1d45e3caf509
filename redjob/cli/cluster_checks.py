"""What `redjob doctor` finds of servers that stand together: a cluster, or Sentinels; under doctor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from redjob.cli.server_checks import NOT_TOLD, Finding, Primary, on_all
from redjob.keys import nodes_key
from redjob.partitions import QUORUM_KEYS, SLOTS, hash_tag, key_slot
from redjob.store.routes import Address
from redjob.store.servers import Servers

_NODE_TIMEOUT_MS = 2000
_SENTINELS = 3


def of_cluster(
    servers: Servers, addresses: Sequence[Address], found: Sequence[Primary], parts: int
) -> dict[str, Finding]:
    """Check what a cluster of these primaries must have; `parts` is the number of partitions."""
    silent = sorted(set(addresses) - {one.address for one in found})
    owners = [servers.of(slot) for slot in range(SLOTS)]
    tags = [hash_tag(index, parts) for index in range(parts)]
    keys = [nodes_key("n", index) for index in range(QUORUM_KEYS)]
    return {
        "primaries": (
            ("fail", f"no answer from {', '.join(map(str, silent))}")
            if silent
            else ("ok", ", ".join(map(str, addresses)))
        ),
        "slots": _slots(owners.count(None)),
        "spread": spread(Counter(owners[key_slot(tag)] for tag in tags), addresses),
        "quorum": quorum(Counter(owners[key_slot(key)] for key in keys)),
        "replicas": on_all(found, _replicas),
        "min-replicas-to-write": on_all(found, _min_replicas),
        "cluster-node-timeout": on_all(found, _node_timeout),
        "cluster-require-full-coverage": on_all(found, _full_coverage),
    }


def of_pair(found: Sequence[Primary], *, must_have_replica: bool) -> dict[str, Finding]:
    """Check the replicas of a server that is no cluster; nothing where there are none and need not be."""
    if not must_have_replica and not any(one.facts.replicas for one in found):
        return {}
    return {
        "replicas": on_all(found, _replicas),
        "min-replicas-to-write": on_all(found, _min_replicas),
    }


def of_sentinels(named: Mapping[Address, Address | None]) -> Finding:
    """Check that the Sentinels of the URL are there, are enough, and agree."""
    silent = [str(one) for one, primary in named.items() if primary is None]
    primaries = {str(primary) for primary in named.values() if primary is not None}
    if len(primaries) > 1:
        return "fail", f"they name different primaries: {', '.join(sorted(primaries))}"
    told = f"{len(named) - len(silent)} of {len(named)} name {', '.join(primaries)}"
    if silent:
        return "warn", f"{told}; no answer from {', '.join(silent)}"
    if len(named) < _SENTINELS:
        return "warn", f"{told}; name {_SENTINELS} or more in the URL: one may be away"
    return "ok", told


def spread(held: Mapping[Address | None, int], addresses: Sequence[Address]) -> Finding:
    """Judge how many partitions each primary has: nearly equal, or one carries the others' load."""
    counts = {address: held.get(address, 0) for address in addresses}
    told = ", ".join(f"{address} has {count}" for address, count in counts.items())
    fair = sum(counts.values()) / max(1, len(counts))
    if fair >= 1 and not all(fair / 2 <= count <= 2 * fair for count in counts.values()):
        return "warn", f"{told}; `redjob move` evens them out"
    return "ok", told


def quorum(held: Mapping[Address | None, int]) -> Finding:
    """Judge where the quorum keys are: schedulers stop while more than half of them are away."""
    address, most = max(held.items(), key=lambda item: item[1])
    if most > QUORUM_KEYS // 2 and address is None:
        return "fail", f"{most} of {QUORUM_KEYS} quorum keys have no primary: no scheduler works"
    if most > QUORUM_KEYS // 2:
        return "warn", (
            f"{most} of {QUORUM_KEYS} quorum keys are on {address}: no scheduler works while it is "
            "away; spread the slots over three primaries or more"
        )
    return "ok", f"{QUORUM_KEYS} quorum keys, at most {most} on one primary"


def _slots(bare: int) -> Finding:
    if bare:
        return "fail", f"{bare} of {SLOTS} slots have no primary: their partitions stand still"
    return "ok", f"all {SLOTS} have a primary"


def _replicas(one: Primary) -> Finding:
    if not one.facts.replicas:
        return "warn", "none: nothing takes its place when it dies"
    return "ok", str(one.facts.replicas)


def _min_replicas(one: Primary) -> Finding:
    if one.settings is None:
        return NOT_TOLD
    there, least = one.facts.replicas, int(one.settings.get("min-replicas-to-write", "0"))
    if least > there:
        return "fail", f"{least}, but there are {there}: every write is refused"
    if there >= 2 and not least:
        return "warn", (
            "0: a primary that is cut off goes on accepting what will be lost; "
            "set 1, with min-replicas-max-lag 2"
        )
    if least and least == there:
        return "warn", f"{least} of {there}: writes stop as soon as one replica is away"
    return "ok", f"{least} of {there}"


def _node_timeout(one: Primary) -> Finding:
    if one.settings is None:
        return NOT_TOLD
    timeout_ms = int(one.settings.get("cluster-node-timeout", "0"))
    if timeout_ms > _NODE_TIMEOUT_MS:
        return "warn", (
            f"{timeout_ms} ms: a dead primary's partitions stand still for as long; "
            f"set {_NODE_TIMEOUT_MS}"
        )
    return "ok", f"{timeout_ms} ms"


def _full_coverage(one: Primary) -> Finding:
    if one.settings is None:
        return NOT_TOLD
    if one.settings.get("cluster-require-full-coverage") == "yes":
        return "warn", "yes: one shard without a primary stops all the others; set no"
    return "ok", "no"
