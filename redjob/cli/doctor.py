"""`redjob doctor`: whether everything that redjob needs is there and as it should be."""

from __future__ import annotations

import click

from redjob.cli.cluster_checks import of_cluster, of_pair, of_sentinels
from redjob.cli.namespace_checks import of_namespace
from redjob.cli.options import connection_options, example, json_option, store_of
from redjob.cli.output import print_json, print_table
from redjob.cli.server_checks import Finding, Primary, examine, of_servers
from redjob.clock import SystemClock
from redjob.config import Connection
from redjob.errors import RedjobError, StoreUnavailable
from redjob.keys import PartitionKeys
from redjob.store.facts import facts_query
from redjob.store.namespace import CLUSTER_PARTITIONS
from redjob.store.routes import Address
from redjob.store.servers import Servers
from redjob.store.sync import SyncStore


@click.command(epilog=example("redjob doctor --redis-url redis://localhost:6379/0"))
@json_option
@connection_options
def doctor(connection: Connection, /, *, as_json: bool) -> None:
    """Check the servers, the namespace and who is at work; exit 1 if something is wrong."""
    store = store_of(connection)
    servers = Servers(store.settings)
    addresses = servers.find()
    primaries = _examined(servers, addresses)
    if not primaries:
        store.query(facts_query())  # with all its tries; still not reachable: it ends here, with 3
        primaries = _examined(servers, addresses)
    if not primaries:
        raise StoreUnavailable(f"{servers.shown} answers now and then only", outcome="refused")
    findings = of_servers(primaries, allow_eviction=connection.allow_eviction)
    match store.settings.topology:
        case "cluster":
            findings |= of_cluster(servers, addresses, primaries, _partitions(store))
        case "sentinel":
            findings["sentinels"] = of_sentinels(servers.named_by_sentinels())
            findings |= of_pair(primaries, must_have_replica=True)
        case "single":
            findings |= of_pair(primaries, must_have_replica=False)
    findings |= of_namespace(store, lambda part: _run_id(servers, primaries, part))
    servers.close()
    _report(primaries[0].facts.label, findings, as_json=as_json)


def _examined(servers: Servers, addresses: list[Address]) -> list[Primary]:
    asked = (examine(servers, address, SystemClock()) for address in addresses)
    return [one for one in asked if one is not None]


def _report(label: str, findings: dict[str, Finding], *, as_json: bool) -> None:
    good = all(status != "fail" for status, _ in findings.values())
    if as_json:
        checks = [
            {"name": name, "status": status, "detail": detail}
            for name, (status, detail) in findings.items()
        ]
        print_json({"ok": good, "server": label, "checks": checks})
    else:
        rows = [(status, name, detail) for name, (status, detail) in findings.items()]
        print_table(["", "check", "found"], rows)
    if not good:
        click.get_current_context().exit(1)


def _partitions(store: SyncStore) -> int:
    try:
        return len(store.keys.parts)
    except RedjobError:  # told by the namespace's own check
        return CLUSTER_PARTITIONS


def _run_id(servers: Servers, primaries: list[Primary], part: PartitionKeys) -> str | None:
    address = servers.of(part.slot)
    return next((one.facts.run_id for one in primaries if one.address == address), None)
