"""docs/reference/agents.md, the confusion table of what is said of workers, as `make agents` recorded it, and
docs/reference/agent-records.md, the CLIs that records describe.
"""

import fnmatch
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.known import read_shipped
from tests.agents.cases import CELLS, IN_TIME_S, PIPE, REASONS, SITUATIONS
from tests.unit.agents.evidence.test_recorded_verdicts import EXPECTED
from tools.markdown import page, table

RECORDED: Final = Path(__file__).resolve().parent.parent / "tests" / "agents" / "results.json"
_MODES: Final = {
    "pipe": "A run of one prompt, its output a pipe",
    "tty": "The program on a terminal, asked there",
    "acp": "Led over the Agent Client Protocol",
}


def faults_page() -> str:
    """What the supervisor said of every CLI in every situation, whether that is so, and how soon."""
    told = json.loads(RECORDED.read_text("utf-8"))["agents"]
    tables = [part for mode, words in _MODES.items() for part in (f"## {words}", _draw(told, mode))]
    found = {cell: note for cell in CELLS if (note := told[cell[0]]["told"].get(key_of(*cell[1:])))}
    good = [cell for cell, note in found.items() if is_right(*cell, note) and is_in_time(note)]
    listed = [
        (
            f"{cli}, {mode}",
            SITUATIONS[name].words,
            REASONS.get((cli, mode, name), "no reason known: a defect"),
        )
        for cli, mode, name in found
        if (cli, mode, name) not in good
    ]
    return page(
        "What is said of agent CLIs, and whether it is so",
        "Recorded by `make agents` with the real CLIs, a scripted provider on loopback, the supervisor, its\n"
        "exec server and sandbox. One that is `running`, `waiting`, `blocked` or `stalled` lives, and was\n"
        "ended then. Each cell says what was told, and after how many seconds: since the provider was first\n"
        "asked, or the signal was sent, or else since the start. ✓ is what a person at that terminal would\n"
        f"say, told within {IN_TIME_S:.0f} s; ✗ is not, and listed below. A stall is told after 5 s there,\n"
        "and after minutes otherwise.",
        f"Of {len(CELLS)} cells {len(found)} are recorded; {len(good)} of these are right in time.",
        *tables,
        "## Not right in time",
        table(("worker", "situation", "why"), listed) if listed else "None.",
        "## What of its user's a worker has",
        "When its state is relocated, which is the default, and it is not sent to another provider "
        "([more](../howto/log-in-agents.md)).",
        table(("CLI", "file", "what", "how it enters", "of its settings"), _host_files(CATALOG.values())),
        "## Versions",
        table(("CLI", "version"), [(name, agent["version"]) for name, agent in told.items()]),
    )


_CASES: Final = {
    "success": "an answer",
    "tool": "a command is run",
    "401": "401",
    "404": "404",
    "429": "429",
    "500": "500 again and again",
    "dns": "the provider's name is not found",
    "down": "nobody listens at the provider's address",
    "truncated": "the stream is cut",
    "refused": "a command that nobody approves",
    "denied": "a command that the sandbox refuses",
    "read-only-home": "its home is read-only",
    "logged-out": "nobody is logged in",
}


def records_page() -> str:
    """Every record that we ship: what was tried, and what is said of each run that was recorded."""
    shipped = read_shipped()
    return page(
        "Agent CLIs by records",
        "These need no Python ([how](../howto/describe-an-agent.md)). Their records are in\n"
        "`src/holdfast/agents/catalog/records/`; a table of the same name in `agents.toml` replaces one.",
        table(
            ("CLI", "program", "tried", "not tried"),
            [(name, f"`{one.binary}`", one.tried, one.untried) for name, one in shipped.items()],
        ),
        "## What is said of recorded runs",
        "The real program, a scripted provider on loopback; a run that went on when the recording was\n"
        "stopped is told as it was then. `completed unverified` is an end with exit code 0 of a CLI that\n"
        "says too little of itself, or whose last command failed. An empty cell was not recorded.",
        table(("run", *shipped), [(words, *_told(shipped, case)) for case, words in _CASES.items()]),
        "## What of its user's a worker has",
        "When its state is relocated, and it is not sent to another provider.",
        table(("CLI", "file", "what", "how it enters", "of its settings"), _host_files(shipped.values())),
        "## Variables that pass",
        "Keys of its user's that `holdfast worker run` passes, unless it is sent to another provider.",
        table(
            ("CLI", "variables"),
            [(name, ", ".join(f"`{key}`" for key in one.keys)) for name, one in shipped.items()],
        ),
    )


def _told(shipped: Iterable[str], case: str) -> list[str]:
    said = [EXPECTED.get(f"{name}/{case}", "") for name in shipped]
    return [f"`{words}`" if words else "" for words in said]


def _host_files(agents: Iterable[Agent]) -> list[tuple[str, ...]]:
    return [
        (
            agent.name,
            f"`~/{file.path}`",
            file.what,
            file.way.value,
            _settings("only", file.keep) or _settings("not", file.drop),
        )
        for agent in agents
        for file in agent.host_files
    ]


def _settings(word: str, names: tuple[str, ...]) -> str:
    return f"{word} {', '.join(f'`{name}`' for name in names)}" if names else ""


def _draw(told: dict[str, Any], mode: str) -> str:
    clis = list(dict.fromkeys(cli for cli, one, _ in CELLS if one == mode))
    names = list(dict.fromkeys(name for _, one, name in CELLS if one == mode))
    rows = [(SITUATIONS[name].words, *(_cell(told, cli, mode, name) for cli in clis)) for name in names]
    return table(("situation", *clis), rows)


def _cell(told: dict[str, Any], cli: str, mode: str, name: str) -> str:
    if (cli, mode, name) not in CELLS:
        return ""
    note = told[cli]["told"].get(key_of(mode, name))
    if note is None:
        return "not recorded"
    mark = "✓" if is_right(cli, mode, name, note) and is_in_time(note) else "✗"
    said = describe(note["state"], note["detail"], note["failure"], note["flags"])
    return f"{mark} `{said}` {_seconds(note):.0f} s"


def key_of(mode: str, name: str) -> str:
    """Under which a cell is recorded."""
    return name if mode == PIPE or name == "decision" else f"{mode} {name}"


def is_right(cli: str, mode: str, name: str, note: dict[str, Any]) -> bool:
    """Is what was told true of this CLI in the situation?"""
    said = describe(note["state"], note["detail"], note["failure"], note["flags"])
    return any(fnmatch.fnmatchcase(said, pattern) for pattern in SITUATIONS[name].truths(cli))


def is_in_time(note: dict[str, Any]) -> bool:
    return _seconds(note) <= IN_TIME_S


def _seconds(note: dict[str, Any]) -> float:
    after = note.get("after")
    return float(note["seconds"] if after is None else after)


def describe(state: str, detail: str, failure: str | None, flags: Sequence[str]) -> str:
    """What is said of a worker, in short: `running(retrying, network)`, `completed unverified`."""
    inner = ", ".join(filter(None, (detail, failure)))
    return " ".join([f"{state}({inner})" if inner else state, *flags])
