"""What a server says of itself, and whether redjob can be carried by it."""

from __future__ import annotations

from dataclasses import dataclass

from redjob.calls.reads import Query
from redjob.errors import ServerUnsuitable
from redjob.keys import PartitionKeys

MIN_REDIS = (7, 0)
MIN_VALKEY = (7, 2)


def parse_info(text: bytes) -> dict[str, str]:
    """Read the reply of INFO, all sections in one."""
    pairs = (
        line.split(":", 1) for line in text.decode("utf-8", "replace").splitlines() if ":" in line
    )
    return {name: value for name, value in pairs}  # noqa: C416 - pairs are lists


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server at one moment, from INFO (managed servers have no CONFIG)."""

    run_id: str
    name: str
    version: tuple[int, ...]
    loading: bool
    eviction: str
    maxmemory: int
    appendonly: bool
    cluster: bool
    replicas: int

    @property
    def label(self) -> str:
        """Name and version, as people write it."""
        return f"{self.name} {'.'.join(map(str, self.version))}"


def server_facts(info: dict[str, str]) -> ServerFacts:
    """Read the facts; Valkey gives its own version beside a Redis one, which is not the one that counts."""
    valkey = info.get("valkey_version")
    version = valkey or info.get("redis_version", "0")
    return ServerFacts(
        run_id=info.get("run_id", ""),
        name="valkey" if valkey else "redis",
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        loading=info.get("loading", "0") == "1",
        eviction=info.get("maxmemory_policy", "noeviction"),
        maxmemory=int(info.get("maxmemory", "0")),
        appendonly=info.get("aof_enabled", "0") == "1",
        cluster=info.get("redis_mode", info.get("server_mode", "standalone")) == "cluster",
        replicas=int(info.get("connected_slaves", "0")),
    )


def facts_query(part: PartitionKeys | None = None) -> Query[ServerFacts]:
    """Ask the server of a partition (None: any) about itself."""
    return Query(part, [("INFO",)], lambda raw: server_facts(parse_info(raw[0])))


def check_server(facts: ServerFacts, *, allow_eviction: bool = False) -> list[str]:
    """Return what is worth a warning; an eviction policy needs the flag, an old version has none.

    Raises ServerUnsuitable when the server would lose jobs by design or cannot run the scripts.
    """
    least = MIN_VALKEY if facts.name == "valkey" else MIN_REDIS
    if facts.version < least:
        raise ServerUnsuitable(
            f"{facts.label} is too old: redjob needs Redis 7.0 or Valkey 7.2; upgrade the server"
        )
    warnings: list[str] = []
    if facts.eviction != "noeviction":
        problem = f"maxmemory-policy is {facts.eviction}: the server may delete jobs"
        if not allow_eviction:
            raise ServerUnsuitable(
                f"{problem}; set maxmemory-policy noeviction, or pass --allow-eviction to risk it"
            )
        warnings.append(f"{problem} (allowed by --allow-eviction)")
    if not facts.appendonly:
        warnings.append("appendonly is off: a crash of Redis loses jobs; set appendonly yes")
    return warnings
