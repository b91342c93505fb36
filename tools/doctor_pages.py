"""Pages of the reference about the doctor: fingerprints, findings, and the exit codes of every command."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from holdfast.doctor.explain.causes import CONFIG_ROWS, LAUNCH_ROWS, RUN_ROWS
from holdfast.doctor.explain.everyday import EVERYDAY_ROWS
from holdfast.doctor.explain.explanation import PROBES
from holdfast.doctor.facts import rules
from holdfast.errors import FACES, INTERNAL
from holdfast.sandbox.reasons.denial_table import COMMAND_ROWS
from holdfast.sandbox.reasons.fingerprint_table import SETUP_ROWS, FingerprintRow
from tools.markdown import code, page, table

TABLES: Final = (
    ("Configuration of agents", "Refused, ignored, overruled, or not the one in force.", CONFIG_ROWS),
    ("Sandbox of agents", "An agent's own sandbox does not start, or stops the agent's tools.", LAUNCH_ROWS),
    ("Work of agents", "What goes wrong while an agent works.", RUN_ROWS),
    ("Everyday", "What fails as well without any sandbox.", EVERYDAY_ROWS),
    ("Setting up a sandbox", "A sandbox could not be built, ours or somebody else's.", SETUP_ROWS),
    ("Inside a sandbox", "What a confined command sees when it is refused something.", COMMAND_ROWS),
)
EXIT_WORDS: Final = re.compile(r"(?:Its exit|Exit) codes?\b")
SAID_AT_RUN_TIME: Final = "…"


# --- fingerprints


def recognised(row: FingerprintRow) -> str:
    """The texts of a row, or how else it is known."""
    texts = [*map(code, row.patterns), *(f"errno {name}" for name in row.errnos)]
    if not texts:
        return "stage and errno of our own launcher" if row in SETUP_ROWS else "nothing is printed"
    conditions = [f"only beside {code(text)}" for text in row.beside]
    conditions += [f"not with {code(text)}" for text in row.unless]
    return "<br>".join((*texts, *conditions))


def fingerprints_page() -> str:
    """Every row of every table."""
    parts = []
    for title, meaning, rows in TABLES:
        lines = [
            (f"`{row.id}`", row.layer, f"{row.confidence:.0%}", recognised(row), row.cause, row.remedy)
            for row in rows
        ]
        head = ("fingerprint", "layer", "sure", "text", "cause", "what to do")
        parts.append(f"## {title}\n\n{meaning}\n\n{table(head, lines)}")
    probes = [(layer, code(probe)) for layer, probe in PROBES.items()]
    return page(
        "Fingerprints",
        "What `holdfast doctor explain` recognises. Texts are regular expressions, whatever the case. The\n"
        "first row that fits a line owns it, in the order of this page. *Sure* is how surely the text alone\n"
        "means this cause.",
        *parts,
        "## Probes\n\nWhat to type to see whether a text is right about this machine.\n\n"
        + table(("layer", "probe"), probes),
    )


# --- findings


class Said(NamedTuple):
    """One finding as the rules state it."""

    id: str
    severity: str
    title: str
    remedy: str


def words(node: ast.expr | None) -> str:
    """The text of an expression; what is known only at run time is an ellipsis."""
    match node:
        case None | ast.Constant(value=None):
            return ""
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(words(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return words(left) + words(right)
        case ast.IfExp(body=body, orelse=orelse):
            return " or ".join(sorted({words(body), words(orelse)} - {""}))
        case _:
            return SAID_AT_RUN_TIME


def severities(node: ast.expr) -> str:
    named = [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    found = [severity for severity in rules.FindingSeverity if severity.name in named] or list(
        rules.FindingSeverity
    )
    return " or ".join(severity.name.lower() for severity in found)


def findings(source: str) -> Iterator[Said]:
    """Every `Finding(…)` of the rules, in their order."""
    names = ("id", "severity", "title", "evidence", "remedy")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="Finding"), args=args, keywords=keywords):
                given = dict(zip(names, args, strict=False)) | {k.arg or "": k.value for k in keywords}
                severity = given["severity"]
                local = isinstance(severity, ast.Name)  # decided some lines above
                yield Said(
                    words(given["id"]),
                    "degraded or broken" if local else severities(severity),
                    words(given["title"]),
                    words(given.get("remedy")),
                )


def findings_page() -> str:
    """What one screen of the doctor can say."""
    rows = [
        (code(said.id), said.severity, said.title, said.remedy)
        for said in sorted(set(findings(Path(rules.__file__).read_text("utf-8"))))
    ]
    codes = [
        (severity.name.lower(), str(rules.exit_code([rules.Finding("", severity, "")])))
        for severity in rules.FindingSeverity
    ]
    return page(
        "Findings",
        f"What `holdfast doctor` can say. {SAID_AT_RUN_TIME} stands for what is known only on the machine.\n"
        "The worst finding decides the exit code.",
        table(("severity", "exit code"), codes),
        "## All findings\n\n" + table(("finding", "severity", "says", "what to do"), rows),
    )


# --- exit codes


def about_exits(command: click.Command) -> str:
    """The paragraph of a command's help that says how it ends."""
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        if (found := EXIT_WORDS.search(text)) is not None:
            return text[found.start() :]
    return ""


def exit_codes_page(contexts: Iterable[click.Context]) -> str:
    """How every command ends, then what each number of an error means."""
    commands = []
    for context in contexts:
        if isinstance(context.command, click.Group) and not context.command.invoke_without_command:
            continue
        above = context.parent.command if context.parent else None
        said = about_exits(context.command) or (about_exits(above) if above else "")
        inherited = said.replace("Exit codes of all of these:", "Exit codes:")
        commands.append(
            (f"`{context.command_path}`", inherited or "Exit codes: 0 done; otherwise the error's.")
        )
    numbers: dict[int, list[str]] = {}
    for cls, face in FACES.items():
        numbers.setdefault(face.exit, []).append(f"`{cls.__name__}`")
    numbers.setdefault(INTERNAL.exit, []).append("a mistake of ours")
    errors = [(str(number), ", ".join(names)) for number, names in sorted(numbers.items())]
    return page(
        "Exit codes",
        "How commands end. An error that is told on standard error ends a command with the number of its\n"
        "class; [errors](errors.md) says what each means.",
        table(("command", "ends with"), commands),
        "## Errors\n\n" + table(("exit code", "errors"), errors),
    )
