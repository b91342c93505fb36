"""What the real CLIs said, replayed: each line still means what it meant when it was recorded.

A recording is made by `tools/record_agent.py`, and its claims were read by a person before they were kept.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.parsers import NAMES, parser_of, text_parser_of
from holdfast.agents.catalog.textlines import TextLines
from holdfast.agents.evidence.evidence import Drift, Evidence, Failure, Result, Retrying, Trouble
from tests.support.rows import every_row
from tests.support.wording import in_words

RECORDED = Path(__file__).parents[1] / "recorded"
RECORDINGS = sorted(RECORDED.glob("*/*.jsonl"))


@dataclass(frozen=True)
class Line:
    at: float
    stream: str
    text: str
    claims: tuple[str, ...]


def lines_of(path: Path) -> list[Line]:
    rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()[1:]]
    return [Line(row["at"], row["from"], row["line"], tuple(row["claims"])) for row in rows]


def replayed(agent: str, lines: list[Line]) -> list[tuple[Line, list[Evidence]]]:
    parsers = {"stdout": parser_of(CATALOG[agent]), "stderr": text_parser_of(CATALOG[agent])}
    return [(line, parsers[line.stream].feed(line.text, line.at)) for line in lines]


def evidence_of(agent: str, case: str) -> list[Evidence]:
    seen = replayed(agent, lines_of(RECORDED / agent / f"{case}.jsonl"))
    return [evidence for _, found in seen for evidence in found]


@every_row("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_line_means_what_it_meant(path: Path) -> None:
    for line, found in replayed(path.parent.name, lines_of(path)):
        assert tuple(map(in_words, found)) == line.claims, line.text


@every_row("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recording_holds_nothing_unknown_and_nothing_private(path: Path) -> None:
    agent = path.parent.name
    header = json.loads(path.read_text("utf-8").splitlines()[0])
    versions = CATALOG[agent].versions
    assert versions is not None
    assert header["version"] in versions
    unknown = [
        item
        for _, found in replayed(agent, lines_of(path))
        for item in found
        if isinstance(item.claim, Drift)
    ]
    assert unknown == []
    assert "mock-key" not in path.read_text("utf-8")


FAILURES = {
    "401": {Failure.AUTH},
    "404": {Failure.MODEL},
    "429": {Failure.RATE_LIMIT},
    "500": {Failure.PROVIDER},
    "truncated": {Failure.PROVIDER},
    "usage-limit": {Failure.QUOTA},
    "outside": {Failure.PERMISSION},
    "read-only-home": {Failure.SANDBOX},
}
# What the CLI does not say: the classifier needs another witness there, or the exit.
SILENT = {
    ("aider", "read-only-home"),  # works; its complaint about a version file is no error
    ("claude", "read-only-home"),  # works, and saves nothing
    ("hermes", "truncated"),  # four times half an answer, taken for one
    ("opencode", "500"),  # not a word in 90 s
    ("qwen", "429"),  # no event for an attempt within 20 s
    ("qwen", "500"),
    ("qwen", "truncated"),  # attempts without a cause
}


@every_row("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_fault_is_named_by_what_the_cli_says(path: Path) -> None:
    agent, case = path.parent.name, path.stem
    said = {
        item.claim.failure
        for item in evidence_of(agent, case)
        if isinstance(item.claim, Result | Retrying | Trouble) and item.claim.failure is not None
    }
    assert said == (set() if (agent, case) in SILENT else FAILURES.get(case, set()))


@every_row("agent", ["codex", "opencode", "claude", "gemini", "qwen"])
def test_success_ends_with_a_result_that_counts_tokens(agent: str) -> None:
    for case in ("success", "tool"):
        last = evidence_of(agent, case)[-1].claim
        assert isinstance(last, Result)
        assert last.ok
        assert last.usage is not None
        assert last.usage.input_tokens >= 100
        assert last.usage.output_tokens >= 20


def test_every_record_names_a_parser_that_exists() -> None:
    assert {agent.parser for agent in CATALOG.values()} <= NAMES


def test_a_key_is_never_in_the_evidence() -> None:
    key = "mock-key-12345678"
    for agent in CATALOG.values():
        for parser in (parser_of(agent, [key]), text_parser_of(agent, [key])):
            for line in (f"Error: 401 {key}", f'{{"type":"{key}"}}', f'{{"type":"error","message":"{key}"}}'):
                assert key not in repr(parser.feed(line, 0.0))


def test_stderr_of_a_shell_is_work_and_of_agents_is_notices() -> None:
    assert text_parser_of(CATALOG["shell"]).feed("hello", 0.0) != []
    assert text_parser_of(CATALOG["codex"]).feed("hello", 0.0) == []
    assert text_parser_of(CATALOG["hermes"]).feed("hello", 0.0) == []
    assert isinstance(parser_of(CATALOG["shell"]), TextLines)
