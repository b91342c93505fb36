"""What is said about a run: to people in lines, to machines as a tree."""

import json

from msgspec import structs

from holdfast.errors import OperationFailed, SandboxUnavailable, UsageError
from holdfast.exec.outcome import (
    Ending,
    ExecFailure,
    Explained,
    PathAnswer,
    Planned,
    Withheld,
    build_failure,
)
from holdfast.sandbox.policy.policy import PathDecision
from holdfast.wire.processes import DenialReport, EnforcementReport, ProcessUsage
from tests.support.rows import every_row

HELD = EnforcementReport("namespaces", weakened=["no second layer"])
WRITE = DenialReport(
    "filesystem", "/out/new", None, "write", "outside", "--allow-write /out", 1.0, "sh: /out/new: Read-only"
)


def test_an_ordinary_end_needs_no_words() -> None:
    assert Ending(7, HELD, usage=ProcessUsage(1, 2, 3)).lines() == []


def test_what_was_not_enforced_is_told_however_it_ended() -> None:
    held = EnforcementReport("landlock", missing=["/w/.git read-only"])
    assert Ending(0, held).lines() == ["holdfast: landlock did not keep /w/.git read-only"]


def test_a_denial_is_told_with_its_rule_and_its_flag() -> None:
    assert Ending(1, HELD, structs.replace(WRITE, witnessed=True)).lines() == [
        "holdfast: the sandbox denied writing /out/new",
        "  rule: outside",
        "  to allow it: --allow-write /out",
        "  seen: sh: /out/new: Read-only",
    ]


@every_row(
    ("denial", "line"),
    [
        (DenialReport("filesystem", None, None, None, None, None, 0.9, "x"), "denies access to a file"),
        (DenialReport("filesystem", "/x", None, "read", None, None, 0.5, "x"), "may have denied reading /x"),
        (DenialReport("network", None, None, None, None, None, 0.9, "x"), "denies the network"),
        (
            DenialReport("network", None, "h.example", None, None, None, 0.9, "x"),
            "denies a connection to h.example",
        ),
        (DenialReport("syscall", None, None, None, "sigsys", None, 0.9, "x"), "denies a system call"),
    ],
)
def test_every_kind_of_denial_has_its_words(denial: DenialReport, line: str) -> None:
    """Who only reads an output does not know what happened, and does not say that he does."""
    said = Ending(1, HELD, denial).lines()[0]
    assert said.startswith(f"holdfast: the sandbox {line} (claimed ")


def test_what_was_withheld_is_one_line_and_machines_get_all_of_it() -> None:
    some = Withheld(("/h/.ssh", "/h/.aws", "/h/.kube", "/h/.npmrc"), ("OPENAI_API_KEY",))
    assert some.words() == [
        "holdfast: withheld from the command: /h/.ssh, /h/.aws, /h/.kube and 1 more (--allow-credentials); "
        "$OPENAI_API_KEY (--pass-env NAME)"
    ]
    assert Ending(0, HELD, withheld=some).report()["withheld"] == {
        "paths": list(some.paths),
        "variables": list(some.variables),
    }
    assert Withheld().words() == []


def test_what_a_command_wrote_cannot_steer_the_terminal() -> None:
    denial = DenialReport("filesystem", "/\x1b[2J\udcff", None, "read", "a\nb", None, 1.0, "\r\x07")
    assert all(line.isprintable() for line in Ending(1, HELD, denial).lines())


def test_a_failure_is_told_with_its_remedy() -> None:
    ending = build_failure(SandboxUnavailable("no namespaces", remedy="turn them on"))
    assert ending.lines() == ["holdfast: no namespaces", "  try: turn them on"]
    assert ending.code == 125


def test_the_exit_code_tells_bad_arguments_from_a_failing_host() -> None:
    assert build_failure(UsageError("what?")).code == 2
    assert build_failure(OperationFailed("disk")).code == 125


def test_the_report_of_an_end_is_complete_and_plain() -> None:
    report = json.loads(json.dumps(Ending(1, HELD, WRITE, ProcessUsage(1, 2, 3)).report()))
    assert report == {
        "schemaVersion": 1,
        "exitCode": 1,
        "enforcement": {
            "backend": "namespaces",
            "missing": [],
            "weakened": ["no second layer"],
            "remedies": [],
            "fingerprint": None,
        },
        "denial": {
            "kind": "filesystem",
            "path": "/out/new",
            "host": None,
            "access": "write",
            "rule": "outside",
            "grant": "--allow-write /out",
            "confidence": 1.0,
            "evidence": "sh: /out/new: Read-only",
            "witnessed": False,
        },
        "usage": {"userMs": 1, "systemMs": 2, "peakRssBytes": 3},
        "error": None,
        "withheld": {"paths": [], "variables": []},
    }


def test_the_report_of_a_failure_has_the_same_members() -> None:
    ending = build_failure(SandboxUnavailable("m", remedy="r", fingerprint="userns.eperm"))
    assert ending.report().keys() == Ending(0).report().keys()
    assert ending.report()["error"] == {"message": "m", "remedy": "r", "fingerprint": "userns.eperm"}
    assert build_failure(OperationFailed("m")).failure == ExecFailure("m")


def test_a_plan_ends_with_who_enforces_it_and_how_well() -> None:
    planned = Planned(["/ws is writable"], HELD)
    assert planned.lines() == [
        "/ws is writable",
        "enforced by namespaces",
        "weakened: no second layer",
    ]
    assert planned.report()["plan"] == ["/ws is writable"]
    assert "not confined" in Planned([], EnforcementReport("none")).lines()[0]


def test_an_explanation_says_who_decides_and_what_would_allow_it() -> None:
    read = PathDecision(True, None, "everything is readable", None)
    write = PathDecision(False, None, "outside", "--allow-write /b")
    explained = Explained([PathAnswer("/a", "/b", read, write)])
    assert explained.lines() == [
        "/a, which is /b",
        "  read: allowed: everything is readable",
        "  write: denied: outside (--allow-write /b allows it)",
    ]
    assert explained.report()["paths"] == [
        {
            "path": "/a",
            "realPath": "/b",
            "read": {"allowed": True, "why": "everything is readable", "grant": None},
            "write": {"allowed": False, "why": "outside", "grant": "--allow-write /b"},
        }
    ]


def test_a_server_that_does_not_say_what_it_denied_is_not_made_to() -> None:
    (line,) = Ending(1, unexplained=True).lines()
    assert "denied something" in line
