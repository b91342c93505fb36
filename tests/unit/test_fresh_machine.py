"""The record of tools/fresh_machine, and what it takes for a process of its own."""

import argparse
import dataclasses
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "fresh_machine"


@pytest.fixture(scope="module")
def fresh() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("fresh_machine", str(SCRIPT))
    spec = importlib.util.spec_from_loader("fresh_machine", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fresh_machine"] = module  # dataclasses look there
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def test_what_is_tried_again_replaces_its_row_and_the_rest_stays(fresh: ModuleType, tmp_path: Path) -> None:
    def result(situation: str, step: str, outcome: str) -> object:
        return fresh.Result(situation, "m", "3.11.7", step, outcome, True, 1.5, "2026-11-16", "abc")

    record = tmp_path / "new" / "record.md"
    fresh.write_record(record, [result("b", "make run", "old"), result("a", "make run", "kept")])
    fresh.write_record(record, [result("b", "make run", "new"), result("b", "some tests", "8 passed")])
    rows = [
        (one["situation"], one["outcome"])
        for one in json.loads(record.with_suffix(".json").read_text("utf-8"))
    ]
    assert rows == [("a", "kept"), ("b", "new"), ("b", "8 passed")]
    last = record.read_text("utf-8").splitlines()[-1]
    assert last == "| b | m | 3.11.7 | some tests | 8 passed | 1.5 | 2026-11-16 | abc | ok |"


def test_only_marked_processes_and_those_of_its_folder_are_its_own(fresh: ModuleType, tmp_path: Path) -> None:
    options = argparse.Namespace(logs=tmp_path)
    user = fresh.User(None, os.geteuid(), os.getegid(), tmp_path / "home")
    trial = fresh.Trial(fresh.Situation("s", "m", "/"), options, user, tmp_path / "folder")
    marks = ({"HOLDFAST_MARK": trial.mark}, {"HOME": str(tmp_path / "home" / "x")}, {"HOME": str(tmp_path)})
    sleeping = [subprocess.Popen(["/bin/cat"], env=env, stdin=subprocess.PIPE) for env in marks]
    try:
        assert sorted(trial.left()) == sorted(process.pid for process in sleeping[:2])
        trial.end()
        assert [process.wait(60) for process in sleeping[:2]] == [-9, -9]
        assert sleeping[2].poll() is None
    finally:
        for process in sleeping:
            process.kill()
            process.communicate()


def test_an_ordinary_user_is_asked_for_nothing_that_only_root_can_do(
    fresh: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    names = {one.name for one in fresh.situations({"3.99": "/x"})}
    wanted = {"private-home", "below-tmp", "space-and-letter", "read-only", "wheel", "python-3.99"}
    assert names == wanted | {"ordinary-user", "user-read-only"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = fresh.situations({"3.99": "/x"})
    assert {one.name for one in found} == wanted
    assert not any(dataclasses.asdict(one)["ordinary"] for one in found)
