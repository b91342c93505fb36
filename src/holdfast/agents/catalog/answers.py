"""Finds a worker's answer in its output. Pure module.

The answer is the text after its last tool call, which is what its CLI would show a person at the end. Each
shape of event is a row in SIGNS. For a CLI that prints no events, the answer is the end of its output.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from holdfast.agents.catalog.output import at_path, text_at
from holdfast.local.shown import strip_sequences

MAX_ANSWER: Final = 64 * 1024  # characters: more than a person reads
MAX_PLAIN: Final = 4096  # bytes from the end of the output of a CLI without events


class Says(NamedTuple):
    """Events with these members hold text of the agent at this path.

    With `whole` it is the complete answer and replaces earlier text; otherwise it is appended.
    """

    members: Mapping[tuple[str, ...], str]
    path: tuple[str, ...]
    whole: bool = False


class Acts(NamedTuple):
    """Events with these members begin something new: earlier text was not the answer."""

    members: Mapping[tuple[str, ...], str]


_ACP: Final = ("params", "update", "sessionUpdate")
SIGNS: Final[tuple[Says | Acts, ...]] = (
    # codex
    Says({("type",): "item.completed", ("item", "type"): "agent_message"}, ("item", "text"), whole=True),
    # claude, qwen: their content is a list, see _parts
    Says({("type",): "result"}, ("result",), whole=True),
    Says({("type",): "text"}, ("text",)),
    Acts({("type",): "tool_use"}),  # and gemini's, and opencode's
    # gemini
    Says({("type",): "message", ("role",): "assistant"}, ("content",)),
    # opencode
    Says({("type",): "text"}, ("part", "text")),
    Acts({("type",): "step_start"}),
    # any CLI driven over ACP
    Says({_ACP: "agent_message_chunk"}, ("params", "update", "content", "text")),
    Acts({_ACP: "tool_call"}),
    Acts({_ACP: "user_message_chunk"}),
)


def find_answer(output: bytes) -> str:
    """Return the worker's answer from its output; empty if there is none."""
    said, events = "", False
    for line in output.splitlines():
        for event in _events(line):
            events = True
            said = _read(event, said)
    if not events:
        text = strip_sequences(output[-MAX_PLAIN:].decode("utf-8", "replace"))
        return text.replace("\r\n", "\n").strip()
    return said.strip()[-MAX_ANSWER:]


def _read(event: object, said: str) -> str:
    for sign in SIGNS:
        if any(at_path(event, *path) != value for path, value in sign.members.items()):
            continue
        if isinstance(sign, Acts):
            return ""
        if words := text_at(event, *sign.path):
            return words if sign.whole else said + words
    return said


def _events(line: bytes) -> Iterable[object]:
    if not line.startswith(b"{"):
        return ()
    try:
        event = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    return _parts(event)


def _parts(event: object) -> Iterable[object]:
    """Return the event, or for an assistant's message its parts."""
    if at_path(event, "type") == "assistant":
        parts = at_path(event, "message", "content")
        return parts if isinstance(parts, list) else ()
    return (event,)
