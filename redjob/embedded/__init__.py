"""Server processes of redjob's own, for demo, dev, bench and tests; stands beside the chain."""

from redjob.embedded.binary import ServerBinary, find_server
from redjob.embedded.errors import ServerNotFound, ServerStartFailed
from redjob.embedded.postgres import EmbeddedPostgres
from redjob.embedded.postgres_binary import PostgresBinaries, all_postgres
from redjob.embedded.process import ServerProcess
from redjob.embedded.server import EmbeddedServer

__all__ = [
    "EmbeddedPostgres",
    "EmbeddedServer",
    "PostgresBinaries",
    "ServerBinary",
    "ServerNotFound",
    "ServerProcess",
    "ServerStartFailed",
    "all_postgres",
    "find_server",
]
