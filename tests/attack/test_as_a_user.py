"""Attacks whose tests work in the process that runs them, which root has here: by an ordinary user as well.

Whoever is not root runs them as they are, among the others.
"""

import re
from typing import Final

import pytest

from tests.support.root_only import root_only
from tests.support.tiers import DEEP
from tests.support.user_suite import SUITE_S, run_as_user

FILES: Final = (
    *("test_03_git", "test_09_forged_diffs", "test_10_file_names", "test_15_locks"),
    *("test_22_managed_proxy", "test_34_worker_hosts"),
    pytest.param("test_20_commands", marks=DEEP),  # in another 20 s
)


@root_only("whoever is an ordinary user runs these files themselves")
@pytest.mark.timeout(SUITE_S + 60)
@pytest.mark.parametrize("file", FILES)
def test_an_ordinary_user_is_no_better_off(file: str) -> None:
    done = run_as_user(f"tests/attack/{file}.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted is not None, done.stdout
    assert int(counted[1]) > 0
    assert " skipped" not in done.stdout, done.stdout
