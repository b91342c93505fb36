"""The reference pages say everything the tables in the code say, and the committed ones are up to date."""

import difflib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest

from holdfast.cli import cli
from holdfast.doctor.explain.explanation import TABLE
from holdfast.doctor.facts.rules import findings
from holdfast.errors import FACES
from holdfast.sandbox.backends.guarantees import BACKENDS, GUARANTEES, GuaranteeRow
from holdfast.wire.methods import METHODS
from tests.support.rows import every_row
from tests.unit.doctor.facts.test_rules import CODEX, HEALTHY
from tools import doctor_pages, reference


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Made by an interpreter of their own, as `make docs` makes them: no other test has a part in them."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, "-m", "tools.reference", folder], cwd=reference.ROOT, check=True)
    return read(folder)


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def differences(had: dict[str, str], made: dict[str, str]) -> str:
    """What is to change in the pages `had`, as a diff."""
    lines = [
        difflib.unified_diff(
            had.get(name, "").splitlines(), made.get(name, "").splitlines(), name, name, n=0, lineterm=""
        )
        for name in sorted({*had, *made})
    ]
    return "\n".join(line for diff in lines for line in diff)


def test_the_committed_pages_are_up_to_date(pages: dict[str, str]) -> None:
    assert differences(read(reference.REFERENCE), pages) == "", "run `make docs`"


def test_every_command_and_option_is_there(pages: dict[str, str]) -> None:
    assert "\n## holdfast\n" in pages["cli.md"]
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert f"\n## holdfast {name}\n" in pages["cli.md"]
        for option in (option for parameter in command.params for option in parameter.opts):
            assert option in pages["cli.md"]


@every_row("name", METHODS)
def test_every_method_and_parameter_is_there(name: str, pages: dict[str, str]) -> None:
    text = pages["methods.md"]
    assert f"[`{name}`]" in text
    section = text.split(f"\n### {name}\n")[1].split("\n### ")[0]
    for member in METHODS[name].params.__struct_encode_fields__:
        assert f"| `{member}` |" in section


@every_row("cls", FACES)
def test_every_error_is_there_with_its_codes(cls: type, pages: dict[str, str]) -> None:
    [row] = [line for line in pages["errors.md"].splitlines() if line.startswith(f"| `{cls.__name__}` |")]
    rpc, exit_status, http = FACES[cls]
    assert f"| {rpc} | {exit_status} | {http} |" in row


@every_row("row", GUARANTEES, ids=lambda row: row.id)
def test_every_guarantee_is_there_with_every_backend(row: GuaranteeRow, pages: dict[str, str]) -> None:
    section = pages["sandbox.md"].split(f"\n### {row.id}\n")[1].split("\n### ")[0]
    for backend in BACKENDS:
        assert f"| {backend} | {row.under(backend).verdict} | {row.under(backend).why} |" in section
    assert all(f"`{attempt}`" in section for attempt in row.attempts)


@pytest.mark.parametrize("page", ["methods.md", "sandbox.md"])
def test_every_link_leads_to_a_heading(page: str, pages: dict[str, str]) -> None:
    text = pages[page]
    headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    anchors = ["".join(c for c in heading.lower() if c.isalnum() or c == "-") for heading in headings]
    links = [part.split(")")[0] for part in text.split("](#")[1:]]
    assert set(links) <= set(anchors)
    assert len(anchors) == len(set(anchors))


def test_a_number_is_listed_with_its_reason(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "MAX_BYTES: Final = 64 * 1024  # a reason\n"
        "MANY: Final = (\n    MAX_BYTES * 2\n)  # twice as good\n"
        "NO_REASON: Final = 3\n"
        "# a line of its own says nothing about the next number\n"
        "NEITHER: Final = 4\n"
        "TEXT: Final = 'x'  # no number\n"
        "_PRIVATE: Final = 5  # nobody's business\n"
        "KERNEL: Final = 6  # linux/fcntl.h\n",
        "utf-8",
    )
    assert reference.numbers(module) == [
        reference.Number("MAX_BYTES", "64 * 1024", "a reason"),
        reference.Number("MANY", "MAX_BYTES * 2", "twice as good"),
    ]


def test_every_fingerprint_is_there_with_its_cause_and_remedy(pages: dict[str, str]) -> None:
    lines = pages["fingerprints.md"].splitlines()
    for known in TABLE:
        [row] = [line for line in lines if line.startswith(f"| `{known.id}` |")]
        assert known.cause.replace("|", "\\|") in row
        assert known.remedy.replace("|", "\\|") in row


def test_the_rows_are_in_the_order_in_which_they_are_tried(pages: dict[str, str]) -> None:
    ids = [line.split("`")[1] for line in pages["fingerprints.md"].splitlines() if line.startswith("| `")]
    assert ids == [known.id for known in TABLE]


def test_every_finding_of_a_machine_is_there(pages: dict[str, str]) -> None:
    ids = [line.split("`")[1] for line in pages["findings.md"].splitlines() if line.startswith("| `")]
    for finding in findings(replace(HEALTHY, agents=(CODEX,), open_files=10, encoding="ascii", now=0.0)):
        assert any(re.fullmatch(re.escape(id_).replace("…", ".+"), finding.id) for id_ in ids), finding.id


def test_a_finding_is_read_from_the_rules() -> None:
    source = (
        "def rule():\n"
        '    yield Finding(f"a.{name}", Severity.NOTE if x else Severity.OK, "says " + ("b" if x else ""))\n'
        '    yield Finding("c", severity, f"{x}", remedy=None)\n'
        '    yield Finding("d", Severity.BROKEN, "e", "seen", "type this")\n'
    )
    assert list(doctor_pages.findings(source)) == [
        ("a.…", "ok or note", "says b", ""),
        ("c", "degraded or broken", "…", ""),
        ("d", "broken", "e", "type this"),
    ]


def test_every_command_that_runs_says_how_it_ends(pages: dict[str, str]) -> None:
    told = [line.split("`")[1] for line in pages["exit-codes.md"].splitlines() if line.startswith("| `")]
    contexts = reference.commands(cli, "holdfast")
    runs = [
        context.command_path
        for context in contexts
        if not isinstance(context.command, click.Group) or context.command.invoke_without_command
    ]
    assert told == runs
    for face in FACES.values():
        assert f"\n| {face.exit} | " in pages["exit-codes.md"]
