"""Recordings of the real CLIs through the classifier: what a person is told of each run.

A run that still went on when the recording was stopped is judged at that moment; one that ended, at its end.
"""

import json
import math
from pathlib import Path

from holdfast.agents.catalog.catalog import CATALOG, log_parser_of, parser_of, text_parser_of
from holdfast.agents.catalog.known import read_shipped
from holdfast.agents.evidence.evidence import Evidence, Exited, Source, WorkerStatus
from holdfast.agents.evidence.status import WorkerLimits, classify
from tests.support.rows import every_row

RECORDED = Path(__file__).parents[1] / "recorded"
CASES = sorted(f"{path.parent.name}/{path.stem}" for path in RECORDED.glob("*/*.jsonl"))


def judged(case: str, until: float = math.inf) -> WorkerStatus:
    """What is said of a recorded run, at its end or while it goes on."""
    rows = (RECORDED / f"{case}.jsonl").read_text("utf-8").splitlines()
    header, *lines = map(json.loads, rows)
    agent = {**CATALOG, **read_shipped()}[header["agent"]]
    lines = [line for line in lines if line["at"] <= until]
    parsers = {"stdout": parser_of(agent), "stderr": text_parser_of(agent), "log": log_parser_of(agent)}
    seen = [item for line in lines for item in parsers[line["from"]].feed(line["line"], line["at"])]
    end = min(header["seconds"], until)
    if header["exit"] is not None and end == header["seconds"]:
        seen.append(Evidence(Source.EXIT, end, Exited(header["exit"])))
    limits = WorkerLimits(start_s=agent.start_limit_s)
    return classify(seen, end, started_at=0.0, limits=limits, exits=agent.exits)


def told(status: WorkerStatus) -> str:
    words = [status.state.value, status.detail, status.failure.value if status.failure else ""]
    return " ".join(word for word in [*words, *sorted(status.flags)] if word)


EXPECTED = {
    "aider/401": "failed auth",
    "aider/404": "failed model",
    "aider/429": "running retrying rate-limit",
    "aider/500": "running retrying provider",
    "aider/logged-out": "running streaming",
    "aider/read-only-home": "completed unverified",
    "aider/success": "completed unverified",
    "amp/logged-out": "starting",
    "claude/401": "running retrying auth",
    "claude/404": "failed model",
    "claude/429": "running retrying rate-limit",
    "claude/500": "running retrying provider",
    "claude/read-only-home": "completed no-tools",
    "claude/refused": "failed permission",
    "claude/success": "completed no-tools",
    "claude/tool": "completed",
    "claude/truncated": "failed provider",
    "cline/401": "failed auth",
    "cline/404": "failed model",
    "cline/429": "failed rate-limit",
    "cline/500": "failed provider",
    "cline/denied": "completed unverified",
    "cline/dns": "failed network",
    "cline/down": "failed network",
    "cline/logged-out": "failed network",
    "cline/read-only-home": "failed sandbox",
    "cline/refused": "failed permission",
    "cline/success": "completed no-tools",
    "cline/tool": "completed",
    "cline/truncated": "failed provider",
    "codex/401": "failed auth",
    "codex/401-0.121": "failed auth",
    "codex/401-0.130": "failed auth",
    "codex/404": "failed model",
    "codex/404-0.121": "failed model",
    "codex/404-0.130": "failed model",
    "codex/429": "failed rate-limit",
    "codex/429-0.121": "failed rate-limit",
    "codex/429-0.130": "failed rate-limit",
    "codex/500": "running retrying provider",
    "codex/read-only-home": "failed sandbox",
    "codex/refused": "completed no-tools",
    "codex/success": "completed no-tools",
    "codex/tool": "completed",
    "codex/tool-0.121": "completed",
    "codex/tool-0.130": "completed",
    "codex/truncated": "failed provider",
    "codex/usage-limit": "failed quota",
    "continue/401": "failed auth",
    "continue/404": "failed model",
    "continue/429": "stalled",
    "continue/500": "stalled",
    "continue/denied": "completed unverified",
    "continue/dns": "failed network",
    "continue/down": "failed network",
    "continue/logged-out": "failed network",
    "continue/read-only-home": "failed sandbox",
    "continue/refused": "completed unverified",
    "continue/success": "completed unverified",
    "continue/tool": "completed unverified",
    "continue/truncated": "completed unverified",
    "copilot/401": "failed auth",
    "copilot/404": "failed model",
    "copilot/429": "failed rate-limit",
    "copilot/500": "failed provider",
    "copilot/denied": "completed unverified",
    "copilot/dns": "running retrying network",
    "copilot/logged-out": "failed auth",
    "copilot/success": "completed no-tools",
    "copilot/tool": "completed unverified",
    "copilot/truncated": "failed crash",
    "gemini/401": "failed auth",
    "gemini/404": "failed model",
    "gemini/429": "running retrying rate-limit",
    "gemini/500": "running retrying provider",
    "gemini/read-only-home": "failed sandbox",
    "gemini/refused": "completed no-tools",
    "gemini/success": "completed no-tools",
    "gemini/tool": "completed",
    "gemini/truncated": "failed provider",
    "goose/401": "failed auth",
    "goose/404": "failed model",
    "goose/429": "failed rate-limit",
    "goose/500": "failed provider",
    "goose/denied": "completed unverified",
    "goose/dns": "failed network",
    "goose/down": "failed network",
    "goose/logged-out": "failed auth",
    "goose/read-only-home": "failed sandbox",
    "goose/refused": "failed permission",
    "goose/success": "completed no-tools",
    "goose/tool": "completed",
    "goose/truncated": "completed no-tools",
    "hermes/401": "failed auth",
    "hermes/404": "failed model",
    "hermes/429": "failed rate-limit",
    "hermes/read-only-home": "failed sandbox",
    "hermes/success": "completed unverified",
    "hermes/tool": "completed unverified",
    "hermes/truncated": "completed unverified",
    "kilo/401": "failed auth",
    "kilo/404": "failed model",
    "kilo/429": "failed rate-limit",
    "kilo/500": "running retrying provider",
    "kilo/denied": "completed unverified",
    "kilo/down": "running retrying network",
    "kilo/logged-out": "running retrying network",
    "kilo/read-only-home": "failed sandbox",
    "kilo/success": "completed no-tools",
    "kilo/tool": "completed",
    "kilo/truncated": "failed provider",
    "opencode/401": "failed auth",
    "opencode/404": "failed model",
    "opencode/429": "failed rate-limit",
    "opencode/500": "failed provider",
    "opencode/dns": "failed network",
    "opencode/outside": "failed permission",
    "opencode/read-only-home": "failed sandbox",
    "opencode/refused": "completed",
    "opencode/success": "completed no-tools",
    "opencode/tool": "completed",
    "opencode/truncated": "running retrying provider",
    "pi/401": "failed auth",
    "pi/404": "failed model",
    "pi/429": "running retrying rate-limit",
    "pi/500": "failed provider",
    "pi/denied": "completed unverified",
    "pi/dns": "failed network",
    "pi/logged-out": "failed auth",
    "pi/success": "completed no-tools",
    "pi/tool": "completed",
    "pi/truncated": "completed no-tools",
    "qwen/401": "failed auth",
    "qwen/404": "failed model",
    "qwen/429": "running retrying rate-limit",
    "qwen/500": "running retrying provider",
    "qwen/dns": "running retrying network",
    "qwen/read-only-home": "failed sandbox",
    "qwen/refused": "waiting prompt",
    "qwen/success": "completed no-tools",
    "qwen/tool": "waiting prompt",
    "qwen/truncated": "running retrying",
}


@every_row("case", CASES)
def test_a_recorded_run_is_told_for_what_it_was(case: str) -> None:
    assert told(judged(case)) == EXPECTED[case]


@every_row(
    ("case", "told_as"),
    [
        (f"{agent}/{fault}", f"running retrying {failure}")
        for agent in ("opencode", "qwen")
        for fault, failure in (("429", "rate-limit"), ("500", "provider"), ("dns", "network"))
    ],
)
def test_attempts_that_nothing_on_stdout_tells_of_are_told_as_they_are_made(case: str, told_as: str) -> None:
    lines = map(json.loads, (RECORDED / f"{case}.jsonl").read_text("utf-8").splitlines()[1:])
    first = next(line["at"] for line in lines if "Retrying" in " ".join(line["claims"]))
    assert first < 25.0  # with its start, on a machine with much to do
    assert told(judged(case, until=first)) == told_as
