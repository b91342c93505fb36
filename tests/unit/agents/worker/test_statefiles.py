"""Files in a directory that a worker writes: what is found and read there, and what is not."""

import os
from pathlib import Path

from holdfast.agents.worker.statefiles import MAX_TAIL, LogTail, find_files, read_tail


def test_lines_are_told_once_and_whole_in_whichever_file(tmp_path: Path) -> None:
    log = LogTail(str(tmp_path), "runtime/debug/*.txt")
    assert log.read() == []
    folder = tmp_path / "runtime" / "debug"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"one\ntw")
    assert log.read() == ["one"]
    with (folder / "a.txt").open("ab") as file:
        file.write(b"o\n")
    (folder / "b.txt").write_bytes(b"other\n")
    assert log.read() == ["two", "other"]
    assert log.read() == []


def test_of_a_flood_only_the_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"first\n" + b"x" * MAX_TAIL + b"\nlast\n")
    assert LogTail(str(tmp_path), "log").read()[-1] == "last"
    assert len(read_tail(str(tmp_path / "log"))[0]) == MAX_TAIL


def test_links_and_pipes_lead_nowhere(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "state"
    outside.mkdir()
    inside.mkdir()
    (outside / "a.txt").write_text("secret\n")
    (inside / "linked").symlink_to(outside)
    (inside / "a.txt").symlink_to(outside / "a.txt")
    os.mkfifo(inside / "b.txt")
    assert find_files(str(inside), "*/a.txt") == []
    assert LogTail(str(inside), "*.txt").read() == []
