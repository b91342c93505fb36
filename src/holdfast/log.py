"""Logging: one set-up, two formats, and the field names, which are a public interface.

Messages are constant sentences; data is in `extra` under these names. Payloads, environments, header values,
tokens and URLs are never logged.
"""

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
    "tenant",
    "environment",
    "registration",
    "token_id",
)


# For the logs of libraries: at DEBUG they contain addresses with signatures, tokens and messages.
LIBRARY: Final = logging.getLogger("holdfast.library")
LIBRARY.setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

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
        import json  # imported here, since the other format does not need it

        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """For people: time, level, sentence, then name=value."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.levelname.lower():7} "
        text += record.getMessage()
        text += "".join(f" {name}={value}" for name, value in _fields(record).items())
        text = _spell_out(text)
        if record.exc_info:
            text += "\n" + "\n".join(map(_spell_out, self.formatException(record.exc_info).split("\n")))
        return text


def _spell_out(line: str) -> str:
    """Escape characters that a terminal interprets or that break the line: file names may have them."""
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


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
