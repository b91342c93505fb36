"""docs/reference/agents.md, from what `make agents` recorded."""

import json
from pathlib import Path
from typing import Any, Final

from holdfast.agents.catalog.catalog import CATALOG
from tools.markdown import page, table

RECORDED: Final = Path(__file__).resolve().parent.parent / "tests" / "agents" / "results.json"


def faults_page() -> str:
    """What the supervisor said of every CLI that met every fault, and how soon."""
    told = json.loads(RECORDED.read_text("utf-8"))
    agents, faults = told["agents"], told["faults"]
    head = ("fault", *(f"{name} {agent['version']}" for name, agent in agents.items()))
    said = [
        (words, *(_said(agent["told"].get(fault)) for agent in agents.values()))
        for fault, words in faults.items()
    ]
    took = [
        (words, *(_took(agent["told"].get(fault)) for agent in agents.values()))
        for fault, words in faults.items()
    ]
    return page(
        "What is said of agent CLIs that meet a fault",
        "Recorded by `make agents` with the real CLIs, a scripted provider on loopback, the supervisor, its\n"
        "exec server and sandbox. One that is `running`, `waiting`, `blocked` or `stalled` lives, and was\n"
        "ended then.\n"
        "A stall is told after 5 s there, and after minutes otherwise.",
        "## What is said",
        table(head, said),
        "## How soon, in seconds",
        "From the start of the worker, on a machine with much else to do.",
        table(head, took),
        "## What of its user's a worker has",
        "When its state is relocated, which is the default, and it is not sent to another provider "
        "([more](../howto/log-in-agents.md)).",
        table(("CLI", "file", "what", "how it enters", "of its settings"), _host_files()),
    )


def _host_files() -> list[tuple[str, ...]]:
    return [
        (
            agent.name,
            f"`~/{file.path}`",
            file.what,
            file.way.value,
            _settings("only", file.keep) or _settings("not", file.drop),
        )
        for agent in CATALOG.values()
        for file in agent.host_files
    ]


def _settings(word: str, names: tuple[str, ...]) -> str:
    return f"{word} {', '.join(f'`{name}`' for name in names)}" if names else ""


def _said(told: dict[str, Any] | None) -> str:
    if told is None:
        return "not recorded"
    inner = ", ".join(filter(None, (told["detail"], told["failure"])))
    words = f"{told['state']}({inner})" if inner else str(told["state"])
    return f"`{words}`" + "".join(f" {flag}" for flag in told["flags"])


def _took(told: dict[str, Any] | None) -> str:
    return "" if told is None else f"{told['seconds']:.1f}"
