"""What was proven is remembered, and only that."""

import json
import os
from pathlib import Path

import pytest

from holdfast.doctor.assertion import assertion


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_text("x")
    return path


def test_a_proof_is_found_again(tmp_path: Path, program: Path) -> None:
    folder, key = tmp_path / "state" / "holdfast", assertion.proof_key(program, ["decision"])
    assert assertion.proven_since(folder, key) is None
    assert assertion.record_proof(folder, key, "now")
    assert assertion.proven_since(folder, key) == "now"
    assert [path.name for path in folder.iterdir()] == [assertion.NAME]
    assert (folder / assertion.NAME).stat().st_mode & 0o077 == 0


def test_another_program_or_decision_is_not_proven_by_it(program: Path) -> None:
    key = assertion.proof_key(program, ["decision"])
    assert assertion.proof_key(program, ["other"]) != key
    os.utime(program, ns=(1, 1))
    assert assertion.proof_key(program, ["decision"]) != key
    program.write_text("longer")
    os.utime(program, ns=(1, 1))
    assert assertion.proof_key(program, ["decision"]) != key


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(assertion.MAX_PROOFS + 3):
        assertion.record_proof(tmp_path, f"key{number}", "now")
    kept = json.loads((tmp_path / assertion.NAME).read_text())["proofs"]
    assert len(kept) == assertion.MAX_PROOFS
    assert f"key{assertion.MAX_PROOFS + 2}" in kept


@pytest.mark.parametrize(
    "text", ["", "[]", '{"proofs": 1}', "\x00" * 100, '{"proofs": {}' + " " * 70_000 + "}"]
)
def test_a_file_that_makes_no_sense_proves_nothing_and_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / assertion.NAME).write_text(text)
    assert assertion.proven_since(tmp_path, "key") is None
    assert assertion.record_proof(tmp_path, "key", "now")
    assert assertion.proven_since(tmp_path, "key") == "now"


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    assert not assertion.record_proof(tmp_path / "state", "key", "now")
    assert assertion.proven_since(tmp_path / "state", "key") is None


def test_a_secret_that_decided_is_not_written_down(tmp_path: Path, program: Path) -> None:
    assertion.record_proof(tmp_path, assertion.proof_key(program, ["hunter2"]), "now")
    assert "hunter2" not in (tmp_path / assertion.NAME).read_text()
