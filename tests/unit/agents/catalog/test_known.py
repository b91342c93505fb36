"""Which agents a home knows."""

import os
from pathlib import Path

import pytest

from holdfast.agents.catalog.agent import launch
from holdfast.agents.catalog.catalog import BUILT_IN, CATALOG, FILE, SHIPPED, find_agent
from holdfast.agents.catalog.known import list_agents, read_known, read_shipped
from holdfast.agents.catalog.userrecords import MAX_BYTES
from holdfast.agents.sdk import find_withheld
from holdfast.errors import UsageError
from tests.support.rows import every_row

MINE = '[mine]\nbinary = "mine"\nheadless = ["{prompt}"]\n'


def test_every_record_that_we_ship_is_right_and_says_how_it_was_tried() -> None:
    found = read_shipped()
    assert found
    assert not found.keys() & CATALOG.keys()
    for name, agent in found.items():
        assert (agent.name, agent.binary) == (name, found.find_program(name))
        assert agent.tried
        start = launch(agent, state="/s", prompt="PROMPT", model="m", unattended=True, base="http://h")
        assert (start.stdin or "") + " ".join(start.arguments) != ""


def test_a_home_knows_ours_the_shipped_ones_and_its_own(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(MINE)
    known = read_known(tmp_path)
    assert known["mine"].binary == "mine"
    assert [known.source(name) for name in ("codex", "pi", "mine")] == [
        BUILT_IN,
        SHIPPED,
        str(tmp_path / FILE),
    ]
    assert known.invalid == {}


def test_without_a_file_nothing_is_wrong(tmp_path: Path) -> None:
    assert read_known(tmp_path / "none").invalid == {}


def test_a_wrong_record_does_not_fall_back_to_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(MINE + "[pi]\n[codex]\nbinary = 'evil'\nheadless = ['{prompt}']\n")
    known = read_known(tmp_path)
    assert set(known.invalid) == {"pi", "codex"}
    assert "pi" not in known
    with pytest.raises(UsageError, match="record of `pi` is invalid"):
        find_agent(known, "pi")
    assert "mine" in known


def test_no_record_of_a_user_replaces_or_disables_an_agent_of_ours(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[codex]\nbinary = 'evil'\nheadless = ['{prompt}']\n")
    assert read_known(tmp_path)["codex"] is CATALOG["codex"]


@every_row("kind", ["pipe", "folder", "torn", "not UTF-8", "huge"])
def test_a_file_that_cannot_be_read_costs_only_itself(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"home {kind}" / FILE
    path.parent.mkdir()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "torn":
            path.write_text("[mine")
        case "not UTF-8":
            path.write_bytes(b"\xff")
        case "huge":
            path.write_bytes(b"#" * (MAX_BYTES + 1))
    known = read_known(path.parent)
    assert set(known.invalid) == {FILE}
    assert str(path) in known.invalid[FILE]
    assert known["codex"] is CATALOG["codex"]
    with pytest.raises(UsageError) as raised:
        find_agent(known, "mine")
    assert str(path) in str(raised.value.remedy)


def test_the_list_says_what_is_installed_and_what_is_invalid(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(MINE + "[bad]\n")
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    rows = {row["name"]: row for row in list_agents(tmp_path, str(tmp_path))}
    assert rows["mine"]["program"] == str(tmp_path / "mine")
    assert rows["codex"]["program"] == ""
    assert "binary" in rows["bad"]["invalid"]


def test_a_record_uncovers_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is withheld, an agent of ours keeps its own; one of a record keeps nothing."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    (tmp_path / FILE).write_text(MINE)
    (tmp_path / ".qwen").mkdir()
    environ = {"HOME": str(tmp_path)}
    assert find_withheld("qwen", cwd="/w", environ=environ) == []
    assert find_withheld("mine", cwd="/w", environ=environ) == [str(tmp_path / ".qwen")]
