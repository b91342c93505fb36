"""The MCP server on standard input and output: lines are read here, a thread carries out each call.

There is no event loop: a worker's server makes one call to its board at a time, and a loop would be a third
of its memory.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from holdfast import __version__
from holdfast.errors import HoldfastError, OperationFailed, RemoteProtocolError
from holdfast.mcp import dialogue, toolbox
from holdfast.mcp.dialogue import RequestId
from holdfast.mcp.toolbox import Tool, ToolAnswer
from holdfast.wire.lines import LineReader

MAX_AT_ONCE: Final = 16  # calls under way; beyond that, nothing is read from the client until one is answered
_READ: Final = 64 * 1024


class ToolHandler(Protocol):
    """A set of tools, and the function that carries out a call."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    @property
    def instructions(self) -> str: ...

    @property
    def finishes(self) -> bool:
        """Whether calls under way are completed when the client closes the connection."""

    def call(self, name: str, given: Mapping[str, object]) -> ToolAnswer:
        """Carry out a call, in a thread of its own. Raises HoldfastError."""


def serve(tools: ToolHandler, *, read: int = 0, write: int = 1) -> None:
    """Serve on these descriptors until nothing more can be read."""
    Connection(tools, write).run(read)


class Connection:
    """One client."""

    def __init__(self, tools: ToolHandler, write: int) -> None:
        self._tools = tools
        self._about = dialogue.Server(__version__, tools.instructions, tools.tools)
        self._write = write
        self._free = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._lock = threading.Lock()  # guards the output, one line at a time, and the set of open calls
        self._open: set[RequestId] = set()
        self._threads: list[threading.Thread] = []

    def run(self, read: int) -> None:
        lines = LineReader()
        try:
            while data := os.read(read, _READ):
                for line in lines.feed(data):
                    self._take(line)
            for line in lines.finish():
                self._take(line)
        except RemoteProtocolError as exc:
            sys.stderr.write(f"holdfast: {exc}\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        for thread in self._threads if self._tools.finishes else ():
            thread.join()

    def _take(self, line: bytes) -> None:
        match dialogue.hear(line, self._about):
            case dialogue.Say(line=said):
                self._say(said)
            case dialogue.Cancelled(id=id):
                with self._lock:
                    self._open.discard(id)
            case dialogue.Call() as call:
                self._free.acquire()
                self._open.add(call.id)
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                thread = threading.Thread(
                    target=self._carry_out, args=[call], name=f"call-{call.id}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _carry_out(self, call: dialogue.Call) -> None:
        try:
            said = attempt(lambda: self._tools.call(call.name, call.given))
            with self._lock:
                wanted = call.id in self._open
                self._open.discard(call.id)
            if wanted:
                self._say(dialogue.answer(call.id, said))
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._free.release()

    def _say(self, line: bytes) -> None:
        with self._lock:
            while line:
                line = line[os.write(self._write, line) :]


def attempt(call: Callable[[], ToolAnswer]) -> ToolAnswer:
    """Carry out a call and return its answer; an error is an answer, too."""
    try:
        return call()
    except HoldfastError as exc:
        return toolbox.as_json(toolbox.problem(exc), failed=True)
    except Exception as exc:
        sys.excepthook(type(exc), exc, exc.__traceback__)
        failed = OperationFailed(f"this tool failed by a defect of holdfast: {type(exc).__name__}")
        return toolbox.as_json(toolbox.problem(failed), failed=True)
