"""Control groups as files: where we are, what can be had there, what is written and read.

The second version's files are recorded ones below a directory of the test's: this kernel may have the first.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.sandbox.kernel import cgroup
from holdfast.sandbox.kernel.cgroup import Hierarchies, locate

FIRST = """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
SECOND = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
CONTAINER = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"


def test_hierarchies_of_the_first_version_have_a_directory_each() -> None:
    found = locate(FIRST, "9:name=systemd:/\n8:pids:/a\n4:memory:/session/7\n1:cpu,cpuacct:/\n0::/\n")
    assert found.first == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory/session/7",
        "pids": "/sys/fs/cgroup/pids/a",
    }
    assert (found.second, found.second_top) == ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified")


def test_the_second_version_has_one() -> None:
    own = "/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope"
    found = locate(SECOND, f"0::{own}\n")
    assert found == Hierarchies({}, f"/sys/fs/cgroup{own}", "/sys/fs/cgroup")


def test_a_mount_that_shows_a_part_of_the_tree_is_understood() -> None:
    assert locate(CONTAINER, "4:memory:/docker/abc\n").first == {"memory": "/sys/fs/cgroup/memory"}
    assert locate(CONTAINER, "4:memory:/docker/abc/x\n").first == {"memory": "/sys/fs/cgroup/memory/x"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A user's part of the second version: `app.slice` is delegated, our terminal's scope is below it."""
    for place, given in ((tmp_path, "memory pids"), (tmp_path / "app.slice", "memory pids cpu")):
        place.mkdir(exist_ok=True)
        (place / "cgroup.controllers").write_text("cpu io memory pids\n")
        (place / "cgroup.subtree_control").write_text(given + "\n")
        (place / "cgroup.procs").write_text("")
    scope = tmp_path / "app.slice" / "term.scope"
    scope.mkdir()
    (scope / "cgroup.controllers").write_text("cpu memory pids\n")
    (scope / "cgroup.subtree_control").write_text("\n")
    (scope / "cgroup.subtree_control").chmod(0o400)
    (scope / "cgroup.procs").write_text("1234\n")
    return tmp_path


FILES = {
    "cgroup.procs": "",
    "cgroup.kill": "",
    "memory.max": "max\n",
    "memory.swap.max": "max\n",
    "memory.oom.group": "0\n",
    "memory.current": "1052672\n",
    "memory.peak": "67108864\n",
    "memory.events": "low 0\nhigh 0\nmax 312\noom 4\noom_kill 2\noom_group_kill 1\n",
    "pids.max": "max\n",
    "pids.peak": "51\n",
    "pids.current": "3\n",
    "pids.events": "max 37\n",
    "cpu.max": "max 100000\n",
}


def as_the_kernel_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory made in the fake tree has the recorded files, as one in the real tree has at once."""
    real = os.mkdir

    def mkdir(path: str) -> None:
        real(path)
        for name, content in FILES.items():
            (Path(path) / name).write_text(content)

    monkeypatch.setattr(os, "mkdir", mkdir)


def make(tree: Path, monkeypatch: pytest.MonkeyPatch, wanted: set[str]) -> tuple[cgroup.Groups, Path]:
    as_the_kernel_fills_it(monkeypatch)
    monkeypatch.setattr(cgroup, "_offer", offer)
    groups = cgroup.make("7", wanted, Hierarchies({}, f"{tree}/app.slice/term.scope", str(tree)))
    assert groups is not None
    made = next((tree / "app.slice").glob("holdfast-*-7"))
    return groups, made


def offer(place: str, wanted: frozenset[str]) -> frozenset[str]:
    """Files of a test can be written by root whatever they say; a group with processes gives nothing."""
    given = frozenset(Path(place, "cgroup.subtree_control").read_text().split())
    return wanted & given


def test_a_group_is_made_beside_ours_where_controllers_are_given(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, made = make(tree, monkeypatch, {"memory", "pids", "cpu"})
    assert groups.held == dict.fromkeys(("memory", "pids", "cpu"), "2")
    groups.set_memory(64 << 20)
    groups.set_pids(51)
    groups.set_cpus(1.5)
    written = {name: (made / name).read_text().split("\n")[0] for name in FILES}
    assert written["memory.max"] == "67108864"
    assert written["memory.swap.max"].startswith("0")
    assert written["memory.oom.group"].startswith("1")
    assert written["pids.max"].startswith("51")
    assert written["cpu.max"].startswith("150000 100000")
    groups.enter()
    assert (made / "cgroup.procs").read_text() == "0"
    groups.kill()
    assert (made / "cgroup.kill").read_text() == "1"


def test_what_the_second_version_counts_is_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, _ = make(tree, monkeypatch, {"memory", "pids"})
    assert groups.memory() == (1052672, 67108864, 2)
    assert groups.pids() == (51, 37)


def test_controllers_are_asked_for_where_nobody_lives(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    assert cgroup._offer(str(tmp_path), frozenset({"memory", "cpu"})) == {"memory"}
    assert (tmp_path / "cgroup.subtree_control").read_text().strip() == "+memory"


def test_where_nothing_can_be_made_there_are_no_groups(tmp_path: Path) -> None:
    assert cgroup.make("1", {"memory"}, Hierarchies({})) is None
    assert (
        cgroup.make("1", {"memory"}, Hierarchies({"memory": f"{tmp_path}/gone"}, f"{tmp_path}/no", ""))
        is None
    )


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("memory.oom_control", lambda own: Hierarchies({"memory": own})),
        ("memory.events.local", lambda own: Hierarchies({}, own, own)),
    ],
)
def test_only_kills_in_the_group_itself_count(
    tmp_path: Path, name: str, where: Callable[[str], Hierarchies]
) -> None:
    assert cgroup.count_oom_kills(where(str(tmp_path))) is None, "the kernel does not say"
    (tmp_path / name).write_text("oom 3\noom_kill 2\n", "utf-8")
    (tmp_path / "holdfast-command").mkdir()
    (tmp_path / "holdfast-command" / name).write_text("oom_kill 7\n", "utf-8")
    assert cgroup.count_oom_kills(where(str(tmp_path))) == 2


def test_without_groups_the_kernel_does_not_say() -> None:
    assert cgroup.count_oom_kills(Hierarchies({})) is None
