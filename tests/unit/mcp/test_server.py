"""The edge: lines on descriptors, each call in a thread, and an end that loses no report."""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.mcp.server import MAX_AT_ONCE, serve
from holdfast.mcp.toolbox import Parameters, Tool, ToolAnswer
from tests.support.patience import patient

WAIT_S: Final = patient(20.0)


class Takes(Parameters, kw_only=True):
    pass


class Tools:
    """Calls wait until they are let go on; `quick` does not."""

    tools = (Tool("slow", "Waits.", Takes), Tool("quick", "Does not.", Takes))
    instructions = ""

    def __init__(self, *, finishes: bool = True) -> None:
        self.finishes = finishes
        self.go_on = threading.Event()
        self.begun = threading.Semaphore(0)
        self.ended = 0

    def call(self, name: str, given: Mapping[str, object]) -> ToolAnswer:
        if name == "wrong":
            raise UsageError("no", remedy="another")
        if name == "defect":
            raise ZeroDivisionError
        if name == "slow":
            self.begun.release()
            assert self.go_on.wait(WAIT_S)
        self.ended += 1
        return ToolAnswer(name)


class Client:
    """A client of `serve`, which runs in a thread."""

    def __init__(self, tools: Tools) -> None:
        read, self._to = os.pipe()
        back, write = os.pipe()
        self._from = os.fdopen(back, "rb")
        self._opened = [read, write]

        def run() -> None:
            serve(tools, read=read, write=write)

        self.server = threading.Thread(target=run)
        self.server.start()

    def ask(self, id: int, name: str) -> None:
        call = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}}
        os.write(self._to, json.dumps(call).encode() + b"\n")

    def tell(self, method: str, **params: Any) -> None:
        os.write(
            self._to, json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n"
        )

    def hear(self) -> tuple[int, str, bool]:
        answer = json.loads(self._from.readline())
        [content] = answer["result"]["content"]
        return answer["id"], content["text"], answer["result"]["isError"]

    def leave(self) -> None:
        os.close(self._to)

    def close(self) -> None:
        self.server.join(WAIT_S)
        assert not self.server.is_alive()
        for thread in threading.enumerate():
            if thread.name.startswith("call-"):
                thread.join(WAIT_S)
        for fd in self._opened:
            os.close(fd)
        self._from.close()


def test_a_call_that_takes_long_holds_up_no_other() -> None:
    tools = Tools()
    client = Client(tools)
    client.ask(1, "slow")
    client.ask(2, "quick")
    assert client.hear() == (2, "quick", False)
    tools.go_on.set()
    assert client.hear() == (1, "slow", False)
    client.leave()
    client.close()


def test_what_is_wrong_with_a_call_is_its_answer_and_a_defect_too() -> None:
    client = Client(Tools())
    client.ask(1, "wrong")
    assert client.hear() == (1, '{"error":"no","remedy":"another"}', True)
    client.ask(2, "defect")
    id, text, failed = client.hear()
    assert (id, failed) == (2, True)
    assert "ZeroDivisionError" in text
    client.leave()
    client.close()


def test_a_report_that_is_under_way_when_its_cli_ends_is_brought_to_its_end() -> None:
    tools = Tools()
    client = Client(tools)
    client.ask(1, "slow")
    assert tools.begun.acquire(timeout=WAIT_S)
    client.leave()
    assert client.server.is_alive()
    tools.go_on.set()
    client.close()
    assert tools.ended == 1


def test_who_does_not_finish_leaves_at_once() -> None:
    tools = Tools(finishes=False)
    client = Client(tools)
    client.ask(1, "slow")
    assert tools.begun.acquire(timeout=WAIT_S)
    client.leave()
    client.server.join(WAIT_S)
    assert not client.server.is_alive()
    tools.go_on.set()
    client.close()


def test_a_call_that_was_cancelled_is_not_answered() -> None:
    tools = Tools()
    client = Client(tools)
    client.ask(1, "slow")
    assert tools.begun.acquire(timeout=WAIT_S)
    client.tell("notifications/cancelled", requestId=1)
    client.ask(2, "quick")
    assert client.hear()[0] == 2  # what came before it was taken before it
    tools.go_on.set()
    client.ask(3, "quick")
    assert client.hear()[0] == 3
    client.leave()
    client.close()


def test_whoever_has_too_many_calls_under_way_is_not_read_from() -> None:
    tools = Tools()
    client = Client(tools)
    for id in range(MAX_AT_ONCE + 1):
        client.ask(id, "slow")
    for _ in range(MAX_AT_ONCE):
        assert tools.begun.acquire(timeout=WAIT_S)
    assert not tools.begun.acquire(timeout=0.05)
    tools.go_on.set()
    assert {client.hear()[0] for _ in range(MAX_AT_ONCE + 1)} == set(range(MAX_AT_ONCE + 1))
    client.leave()
    client.close()
