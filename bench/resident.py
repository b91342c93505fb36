"""What stays while nothing happens: the memory of a worker's MCP server, the CPU time of the daemons."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from bench.client import Failed
from bench.measures import Contest
from bench.servers import rollup
from holdfast.handoff.envelope import Grant

MIB: Final = 1 << 20
CLIENT: Final = {"name": "bench", "version": "1"}
HELLO: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}


def mcp_memory(contest: Contest) -> list[float]:
    """A worker's MCP server (PSS) after its tools were listed and one was called, as an agent CLI does."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        outbox = Path(folder, ".holdfast", "outbox")
        outbox.mkdir(parents=True)
        grant = Grant(
            board="b",
            task="t",
            run="r",
            token="x",  # noqa: S106 - nobody reads it
            generation=1,
            socket="",
            outbox=str(outbox),
            command=[],
        )
        run = outbox.parent / "run.json"
        run.write_bytes(msgspec.json.encode(grant))
        return [_memory_of(contest, str(run)) for _ in range(contest.plan.launches)]


def _memory_of(contest: Contest, run: str) -> float:
    python = contest.server.spec.argv[0]
    argv = [python, "-m", "holdfast", "mcp", "--run", run]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            _ask(server.stdin, server.stdout, "initialize", HELLO)
            _ask(server.stdin, server.stdout, "tools/list", {})
            # Refused before it would be sent: nobody answers here, and the wait is not what is measured.
            called = _ask(server.stdin, server.stdout, "tools/call", {"name": "kanban_complete"})
            if not called["isError"]:
                raise Failed("a report without a summary was taken")
            return rollup(server.pid, "Pss:") / MIB
        finally:
            server.stdin.close()
            server.wait()


def _ask(to: IO[bytes], back: IO[bytes], method: str, params: dict[str, Any]) -> Any:
    to.write(
        json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode() + b"\n"
    )
    to.flush()
    answer = json.loads(back.readline())
    if answer.get("id") != method or "result" not in answer:
        raise Failed(f"{method} was answered with {answer}")
    return answer["result"]
