"""The reference pages say everything the tables in the code say, and the committed ones are up to date."""

from pathlib import Path

import pytest

from holdfast.cli import cli
from holdfast.errors import FACES
from holdfast.sandbox.guarantee import BACKENDS, Row
from holdfast.sandbox.guarantees import GUARANTEES
from holdfast.wire.methods import METHODS
from tools import reference


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    reference.write(folder)
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_the_committed_pages_are_up_to_date(pages: dict[str, str]) -> None:
    committed = {path.name: path.read_text("utf-8") for path in reference.REFERENCE.iterdir()}
    assert committed == pages, "run `make docs`"


def test_the_same_code_gives_the_same_bytes(pages: dict[str, str], tmp_path: Path) -> None:
    reference.write(tmp_path / "again")
    assert {path.name: path.read_text("utf-8") for path in (tmp_path / "again").iterdir()} == pages


def test_every_command_and_option_is_there(pages: dict[str, str]) -> None:
    assert "\n## holdfast\n" in pages["cli.md"]
    for name, command in cli.commands.items():
        assert f"\n## holdfast {name}\n" in pages["cli.md"]
        for option in (option for parameter in command.params for option in parameter.opts):
            assert option in pages["cli.md"]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_and_parameter_is_there(name: str, pages: dict[str, str]) -> None:
    text = pages["methods.md"]
    assert f"[`{name}`]" in text
    section = text.split(f"\n### {name}\n")[1].split("\n### ")[0]
    for member in METHODS[name].params.__struct_encode_fields__:
        assert f"| `{member}` |" in section


@pytest.mark.parametrize("cls", FACES)
def test_every_error_is_there_with_its_codes(cls: type, pages: dict[str, str]) -> None:
    [row] = [line for line in pages["errors.md"].splitlines() if line.startswith(f"| `{cls.__name__}` |")]
    rpc, exit_status, http = FACES[cls]
    assert f"| {rpc} | {exit_status} | {http} |" in row


@pytest.mark.parametrize("row", GUARANTEES, ids=lambda row: row.id)
def test_every_guarantee_is_there_with_every_backend(row: Row, pages: dict[str, str]) -> None:
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
