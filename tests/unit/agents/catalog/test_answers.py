"""The last words of a worker, from recordings of the real CLIs and from shapes that they may take."""

import json
from pathlib import Path
from typing import Final

from holdfast.agents.catalog.answers import MAX_PLAIN, find_answer
from tests.support.rows import every_row

RECORDED: Final = Path(__file__).parents[1] / "recorded"


def output_of(cli: str, case: str) -> bytes:
    lines = [json.loads(line) for line in (RECORDED / cli / f"{case}.jsonl").read_text().splitlines()[1:]]
    return "\n".join(line["line"] for line in lines).encode()


@every_row("cli", ["codex", "claude", "gemini", "qwen", "opencode"])
def test_what_was_said_after_the_last_tool_is_the_answer(cli: str) -> None:
    assert find_answer(output_of(cli, "tool")) == "The command has run."


@every_row("cli", ["codex", "claude", "gemini", "opencode"])
def test_a_run_that_was_refused_by_its_provider_answered_nothing(cli: str) -> None:
    assert find_answer(output_of(cli, "401")) == ""


def test_over_acp_the_chunks_after_the_last_tool_are_the_answer() -> None:
    def update(kind: str, text: str = "") -> str:
        content = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
        return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"update": content}})

    lines = [
        update("agent_message_chunk", "I will look."),
        update("tool_call"),
        update("agent_message_chunk", "It "),
        update("agent_message_chunk", "is done."),
        '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}',
    ]
    assert find_answer("\n".join(lines).encode()) == "It is done."


def test_a_program_without_events_answers_with_the_end_of_what_it_printed() -> None:
    assert find_answer(b"one\r\n\x1b[31mtwo\x1b[0m\n") == "one\ntwo"
    assert len(find_answer(b"x" * 3 * MAX_PLAIN)) == MAX_PLAIN


@every_row(
    "line", [b"{", b'{"a":', b"{" * 5000, b'{"type":"assistant","message":7}', b"\xff\xfe", b"[]"], ids=repr
)
def test_whatever_is_printed_is_read(line: bytes) -> None:
    assert isinstance(find_answer(line), str)
