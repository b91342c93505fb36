"""However an agent's output is cut, the same is understood and said; nothing it says breaks the reading."""

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import Evidence
from holdfast.agents.worker.acp import AcpEvents, AcpRequest
from holdfast.agents.worker.book import Record
from holdfast.agents.worker.channels import channel_of
from tests.unit.agents.worker.test_acp import INITIALIZED, OPENED, asks, update

EVENTS: list[dict[str, Any]] = [
    INITIALIZED,
    OPENED,
    asks(),
    asks("ü", "Shell"),
    update("agent_message_chunk", content={"type": "text", "text": "schön\u2028"}),
    update("tool_call_update", toolCallId="c", status="completed"),
    {"id": 1, "method": "fs/read_text_file"},
    {"id": "holdfast-prompt", "result": {"stopReason": "end_turn"}},
]
LINES = st.one_of(
    st.sampled_from([json.dumps(event, ensure_ascii=False).encode() for event in EVENTS]),
    st.sampled_from([b"", b"not JSON", b"\xff\xfe", b"[1]", b'{"id":']),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_MEMBERS = (
    "id method params result error update sessionUpdate options optionId toolCall status code message data"
    " stopReason configOptions models sessionId content"
)
MEMBERS = st.sampled_from(_MEMBERS.split())
SHAPED = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["session/update", "session/request_permission"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=5),
    max_leaves=15,
)


def heard(pieces: list[bytes]) -> tuple[list[Evidence], bytes, bool]:
    record = Record(id="w", agent="opencode", argv=[], cwd="/w", tty=False, created_at=0.0, acp=True)
    channel = channel_of(CATALOG["opencode"], record, (), AcpRequest("/w", "do it"))
    taken = [channel.feed("stdout", piece, 1.0) for piece in pieces]
    evidence = [item for one in taken for item in one.evidence]
    return evidence, b"".join(one.replies for one in taken), any(one.last for one in taken)


@given(st.lists(LINES, max_size=8), st.lists(st.integers(0, 2000), max_size=12))
@settings(deadline=None)
def test_any_cut_of_the_output_is_understood_alike(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert heard(pieces) == heard([data])


@given(st.lists(JSON | SHAPED, max_size=5))
@settings(deadline=None)
def test_no_message_breaks_the_reading_and_every_reply_is_a_message(events: list[object]) -> None:
    acp = AcpEvents(AcpRequest("/w", "do it"))
    for event in events:
        acp.feed(json.dumps(event), 1.0)
        for line in acp.said().data.splitlines():
            assert json.loads(line)["jsonrpc"] == "2.0"
