"""A server process of redjob's own, for demo, dev, bench and tests; stands beside the chain."""

from redjob.embedded.binary import ServerBinary, find_server
from redjob.embedded.errors import ServerNotFound, ServerStartFailed
from redjob.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer", "ServerBinary", "ServerNotFound", "ServerStartFailed", "find_server"]
