"""How services log: one line an event, key=value, to stderr; under service."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")


class KeyValueFormatter(logging.Formatter):
    """`ts=… level=… logger=… event=<word> key=value …`.

    redjob's own messages are such pairs after their first word already; others are quoted as a whole.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it where there is one."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = record.getMessage()
        if record.name.partition(".")[0] != "redjob":
            message = "foreign message=" + _quoted(message)
        line = (
            f"ts={stamp.replace('+00:00', 'Z')} level={record.levelname.lower()} "
            f"logger={record.name} event={' '.join(message.splitlines())}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(level: str) -> None:
    """Send every log line of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
