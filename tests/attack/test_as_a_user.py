"""Attacks whose tests work in the process that runs them, which root has here: by an ordinary user as well.

Whoever is not root runs them as they are, among the others.
"""

from typing import Final

import pytest

from tests.support.root_only import root_only
from tests.support.tiers import sizes
from tests.support.user_suite import SUITE_S, passed_by_user

FILES: Final = (
    *("test_03_git", "test_09_forged_diffs", "test_10_file_names", "test_15_locks"),
    *("test_22_managed_proxy", "test_34_worker_hosts"),
)
LONGER: Final = ("test_20_commands", "test_21_returned_work")  # in another 30 s


@root_only("whoever is an ordinary user runs these files themselves")
@pytest.mark.timeout(SUITE_S + 60)
@sizes("files", quick=FILES, deep=LONGER)
def test_an_ordinary_user_is_no_better_off(files: tuple[str, ...]) -> None:
    """In one run: to start it costs more than most of the files."""
    passed = passed_by_user(f"tests/attack/{file}.py" for file in files)
    assert [file for file in files if not passed[f"tests.attack.{file}"]] == []
