"""The recommended configurations in `deploy/redis`: servers start with them, and the doctor is content."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from redis import Redis
from redis.exceptions import AuthenticationError, RedisError

from redjob.cli.root import DONE
from redjob.embedded import EmbeddedServer
from redjob.embedded.guard import Guard
from redjob.embedded.ports import free_ports
from tests.flow.sweeping import staged
from tests.flow.test_cli_doctor import doctor, everybody_is_there
from tests.flow.test_rights import rule
from tests.support.processes import wait_until
from tests.support.servers import find_programs

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.servers import OwnClusterFactory, OwnServerFactory, ProgramKind

pytestmark = pytest.mark.anyio

DEPLOY = Path(__file__).parents[2] / "deploy" / "redis"
SERVER_FILES = ("single.conf", "cluster-node.conf", "sentinel-server.conf")
KINDS = ("valkey", "redis")
# What the files must set right: they come last on the command line.
BAD = ("--maxmemory-policy", "allkeys-lru", "--hash-max-listpack-value", "64")
BAD_CLUSTER = ("--cluster-node-timeout", "15000", "--cluster-require-full-coverage", "yes")
USER = "redjob:change-me-redjob@"


def include(name: str) -> tuple[str, str]:
    return ("--include", str(DEPLOY / name))


def lines(name: str) -> list[str]:
    text = (DEPLOY / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


async def content(url: str, workspace: str, namespace: str) -> dict[str, Any]:
    """Let the doctor look at a namespace in good order: it must find nothing, not even a warning."""
    async with staged(workspace, namespace, partitions=8) as stage:
        await everybody_is_there(stage)
        ran, found = doctor(url, namespace)
    assert ran.code == DONE, ran
    assert [check for check in found.values() if check["status"] != "ok"] == []
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_the_doctor_is_content_with_a_single_server(
    own_server: OwnServerFactory, ns: str, kind: ProgramKind
) -> None:
    server = own_server(kind, appendonly=False, extra_args=(*BAD, *include("single.conf")))
    found = await content(server.url, server.url, ns)
    assert found["appendonly"]["detail"] == "on"
    assert found["hash-max-listpack-value"]["detail"] == "1024"
    assert "of 2048 MiB" in found["maxmemory"]["detail"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_doctor_is_content_with_a_cluster(
    own_cluster: OwnClusterFactory, ns: str, kind: ProgramKind
) -> None:
    arguments = (*BAD, *BAD_CLUSTER, *include("cluster-node.conf"))
    nodes = own_cluster(kind, extra_args=arguments)
    found = await content(nodes.url, nodes.url, ns)
    assert found["cluster-node-timeout"]["detail"] == "2000 ms"
    assert found["cluster-require-full-coverage"]["detail"] == "no"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_doctor_is_content_under_sentinel_with_users(
    tmp_path: Path, kind: ProgramKind
) -> None:
    program = program_of(kind)
    users = ("--aclfile", str(DEPLOY / "users.acl"))
    replication = [word for line in lines("tls.conf")[-2:] for word in ("--" + line).split()]
    options = (*BAD, *include("sentinel-server.conf"), *users, *replication)
    with ExitStack() as stack:

        def start(name: str, *more: str) -> EmbeddedServer:
            server = EmbeddedServer(tmp_path / name, binary=program, extra_args=(*options, *more))
            return stack.enter_context(server)

        primary = start("primary")
        follow = ("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
        servers = [primary, start("replica-1", *follow), start("replica-2", *follow)]
        admins = {server.url: stack.enter_context(admin(server)) for server in servers}
        wait_until(
            lambda: admins[primary.url].info("replication").get("min_slaves_good_slaves") == 2,
            within_s=20,
            what="two replicas are in step",
        )
        sentinels = [
            stack.enter_context(sentinel(tmp_path / f"sentinel-{number}", program, primary.port))
            for number in range(3)
        ]
        wait_until(
            lambda: all(knows_all(client) for _, client in sentinels),
            within_s=30,
            what="the sentinels know each other and the replicas",
        )
        hosts = ",".join(f"127.0.0.1:{port}" for port, _ in sentinels)
        url = f"redis+sentinel://{USER}{hosts}/redjob/0"
        workspace = primary.url.replace("://", f"://{USER}")
        found = await content(url, workspace, "redjob")
        assert found["sentinels"]["detail"] == f"3 of 3 name 127.0.0.1:{primary.port}"
        assert found["min-replicas-to-write"]["detail"] == "1 of 2"
        # The users are enough for a failover, too.
        assert sentinels[0][1].execute_command("SENTINEL", "FAILOVER", "redjob")
        wait_until(
            lambda: str(primary.port) not in doctor(url, "redjob")[1]["sentinels"]["detail"],
            within_s=30,
            what="another server is the primary",
        )


async def test_the_doctor_is_content_with_tls_and_users(tmp_path: Path) -> None:
    program = program_of("redis")
    port, tls_port, other_port, other_tls_port = free_ports(4)
    with ExitStack() as stack:
        options = tls_files(tmp_path, tls_port)
        server = EmbeddedServer(
            tmp_path / "server",
            port=port,
            binary=program,
            extra_args=(*options, "--port", str(port)),
        )
        try:
            stack.enter_context(server)
        except Exception as exc:
            if "TLS" in str(exc):
                pytest.skip("this redis-server knows no TLS")
            raise
        url = f"rediss://{USER}127.0.0.1:{tls_port}/0?ssl_ca_certs={tmp_path}/tls/ca.crt"
        found = await content(url, url, "redjob")
        assert found["hash-max-listpack-value"]["detail"] == "1024"
        with Redis(port=port) as nobody, pytest.raises(AuthenticationError):
            nobody.ping()
        with admin(server) as client:
            assert client.acl_log() == []  # nothing was refused
            # A replica comes in by TLS, as the user of the file.
            follow = ("--replicaof", f"127.0.0.1 {tls_port}", "--port", str(other_port))
            replica = EmbeddedServer(
                tmp_path / "replica",
                port=other_port,
                binary=program,
                extra_args=(*tls_files(tmp_path, other_tls_port), *follow),
            )
            stack.enter_context(replica)
            wait_until(
                lambda: client.info("replication")["connected_slaves"] == 1,
                within_s=20,
                what="the replica is in step",
            )


def test_what_all_servers_need_is_the_same_in_every_file() -> None:
    common = lines("single.conf")
    for name in SERVER_FILES:
        assert lines(name)[: len(common)] == common


def test_each_setting_follows_its_reason() -> None:
    for name in (*SERVER_FILES, "sentinel.conf", "tls.conf"):
        text = (DEPLOY / name).read_text()
        bare = re.findall(r"\n\n([^#\n].*)", text)
        assert bare in ([], ["cluster-enabled yes"], ["port 26379"])
        assert not [line for line in lines(name) if "#" in line]  # servers take no such comment


def test_the_user_has_the_documented_rights() -> None:
    (line,) = (line for line in lines("users.acl") if line.startswith("user redjob "))
    documented = {word for word in rule()[3:] if not word.startswith(">")}
    granted = {word for word in line.split()[2:] if not word.startswith(">")}
    assert granted == documented | {"+config|get"}


def program_of(kind: ProgramKind) -> Path:
    programs = find_programs()
    if kind not in programs:
        pytest.skip(f"no {kind} here")
    return programs[kind].path


@contextmanager
def admin(server: EmbeddedServer) -> Generator[Any]:
    """A client that may do anything, by the users file."""
    with Redis(
        port=server.port, username="admin", password="change-me-admin", decode_responses=True
    ) as client:
        yield client


@contextmanager
def sentinel(directory: Path, program: Path, primary_port: int) -> Generator[tuple[int, Any]]:
    """A Sentinel with the file's settings, as the user that the file names; its port and a client."""
    directory.mkdir()
    (port,) = free_ports(1)
    text = (DEPLOY / "sentinel.conf").read_text()
    text = text.replace("10.0.0.1 6379", f"127.0.0.1 {primary_port}")
    text = text.replace("port 26379", f"port {port}\nbind 127.0.0.1")
    text = re.sub(r"^#   (sentinel auth-)", r"\1", text, flags=re.MULTILINE)
    assert text.count("\nsentinel auth-") == 2
    file = directory / "sentinel.conf"
    file.write_text(text)
    with (directory / "log").open("wb") as log:
        popen = subprocess.Popen(
            [program, file, "--sentinel"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    guard = Guard(popen.pid)
    try:
        with Redis(port=port, decode_responses=True) as client:
            yield port, client
    finally:
        popen.kill()
        popen.wait()
        guard.release()


def knows_all(client: Any) -> bool:
    """Whether a Sentinel knows the two others and both replicas."""
    try:
        told: dict[str, str] = client.sentinel_master("redjob")
    except RedisError:
        return False
    return int(told["num-other-sentinels"]) == 2 and int(told["num-slaves"]) == 2


def tls_files(directory: Path, tls_port: int) -> tuple[str, ...]:
    """The files with their places and port replaced, and a certificate where there is none."""
    tls = directory / "tls"
    if not tls.exists():
        tls.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(tls / "ca.crt"))
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(str(tls / "server.key"))
        issued.cert_chain_pems[0].write_to_path(str(tls / "server.crt"))
        (directory / "users.acl").write_text((DEPLOY / "users.acl").read_text())
    text = (DEPLOY / "tls.conf").read_text().replace("/etc/redis", str(directory))
    file = directory / f"tls-{tls_port}.conf"
    file.write_text(text.replace("tls-port 6379", f"tls-port {tls_port}"))
    return (*include("single.conf"), "--include", str(file))
