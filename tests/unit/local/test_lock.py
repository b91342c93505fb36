"""Locks between open files: each `open` is a holder of its own, also in one process."""

import os
from pathlib import Path

from holdfast.local.lock import take_lock, wait_for_lock


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_one_holder_at_a_time_until_it_closes(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    assert take_lock(first)
    assert not take_lock(second)
    assert not take_lock(second, shared=True)
    assert not wait_for_lock(second, within_s=0.0)
    os.close(first)
    assert wait_for_lock(second, within_s=0.0)
    os.close(second)


def test_who_only_looks_shares_it_with_others_who_look(tmp_path: Path) -> None:
    files = [opened(tmp_path / "lock") for _ in range(3)]
    assert [take_lock(one, shared=True) for one in files[:2]] == [True, True]
    assert not take_lock(files[2])
    for one in files:
        os.close(one)
