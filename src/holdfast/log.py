"""Logging: one set-up, two formats, and the field names that are an interface.

Messages are constant sentences; data goes in `extra` under these names. Payloads, environments,
header values, tokens and URLs never do.
"""

import json
import logging
import sys
import time
from typing import Final, Literal

FIELDS: Final = (
    "session_id",
    "connection_id",
    "process_id",
    "request_id",
    "method",
    "trace_id",
    "peer",
    "backend",
    "missing",
    "duration_ms",
    "pid",
    "reason",
)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """For people: time, level, sentence, then name=value."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.levelname.lower():7} "
        text += record.getMessage()
        text += "".join(f" {name}={value}" for name, value in _fields(record).items())
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def set_up(*, style: Literal["json", "text"], level: str) -> None:
    """Send the package's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger("holdfast")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
