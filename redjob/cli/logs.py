"""How services log: one line an event, key=value, to stderr; under service."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

LEVELS = ("debug", "info", "warning", "error")


class KeyValueFormatter(logging.Formatter):
    """`ts=… level=… logger=… event=<word> key=value …`.

    redjob's own messages are such pairs after their first word already; others are quoted as a whole.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it where there is one."""
        message = record.getMessage()
        if not _is_ours(record):
            message = "foreign message=" + _quoted(message)
        line = (
            f"ts={_stamp(record)} level={record.levelname.lower()} "
            f"logger={record.name} event={' '.join(message.splitlines())}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, message, and event where redjob itself speaks."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback is one of its fields."""
        message = record.getMessage()
        told = {
            "ts": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        if _is_ours(record):
            told["event"] = message.partition(" ")[0]
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told).decode()


def logs_json() -> bool:
    """Whether this process logs JSON."""
    return any(isinstance(h.formatter, JsonFormatter) for h in logging.getLogger().handlers)


def set_up_logging(level: str, *, as_json: bool) -> None:
    """Send every log line of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else KeyValueFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _stamp(record: logging.LogRecord) -> str:
    stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == "redjob"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
