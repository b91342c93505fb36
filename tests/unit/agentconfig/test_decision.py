"""Versions, and a decision as plain values."""

import json

from holdfast.agentconfig.decision import ConfigRequest, Decision, Mode, Severity, Version, parse_version
from holdfast.agentconfig.settings import Setting, settings
from tests.support.rows import every_row


@every_row(
    ("text", "version"),
    [
        ("codex-cli 0.166.0\n", (0, 166, 0)),
        ("codex-cli 0.150.0-alpha.3", (0, 150, 0)),
        ("1.2.3 4.5.6", (1, 2, 3)),
        ("codex", None),
        ("codex 0.166", None),
        ("codex 1.2.3.4", None),
        ("", None),
    ],
)
def test_a_version_is_read_or_not_known(text: str, version: Version | None) -> None:
    assert parse_version(text) == version


def test_the_board_is_a_writable_root_once() -> None:
    assert ConfigRequest(roots=("/a", "/b"), board="/c").writable == ("/a", "/b", "/c")
    assert ConfigRequest(roots=("/a",), board="/a").writable == ("/a",)
    assert ConfigRequest().writable == ()


def test_a_report_is_plain_and_complete() -> None:
    decided = settings([Setting(("sandbox_mode",), "read-only")])
    decision = Decision("r", Mode.READ_ONLY, Severity.OK, decided, ("-s",), "because", ("do",), ("note",))
    assert json.loads(json.dumps(decision.report())) == {
        "row": "r",
        "mode": "read-only",
        "severity": "ok",
        "settings": [{"key": ["sandbox_mode"], "value": "read-only"}],
        "flags": ["-s"],
        "reason": "because",
        "remedies": ["do"],
        "notes": ["note"],
    }
