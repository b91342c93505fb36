"""Looking at a real disk: links, kinds, git files, patterns; and the plan that comes of it."""

import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import OperationFailed, SandboxUnavailable, UsageError
from holdfast.sandbox.plan import resolve
from holdfast.sandbox.plan.plan import Plan
from holdfast.sandbox.plan.planner import Crossing, DiskSnapshot, FoundKind, GitDir, Sight, plan_for
from holdfast.sandbox.plan.resolve import MAX_MATCHES, locate, look, trace
from holdfast.sandbox.policy.policy import (
    Network,
    Policy,
    Where,
    bind,
    full_access,
    read_only,
    workspace_write,
)


@pytest.fixture(name="top")
def fixture_top(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def seen(policy: Policy, root: Path) -> DiskSnapshot:
    return look(bind(policy, Where(str(root), (str(root),), slash_tmp=False)))


def plan(policy: Policy, root: Path) -> Plan:
    bound = bind(policy, Where(str(root), (str(root),), slash_tmp=False))
    return plan_for(bound, look(bound))


def matched(root: Path, *patterns: str, depth: int | None = None) -> set[str]:
    policy = read_only()
    for pattern in patterns:
        policy = policy.deny_glob(pattern)
    found = seen(Policy(policy.rules, Network.OFF, glob_depth=depth), root).matches
    return {os.path.relpath(match.path, root) for match in found}


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_places_are_located_in_the_environment() -> None:
    where = locate("/w", ["/w"], {"TMPDIR": "/t"})
    assert where == Where("/w", ("/w",), "/t", slash_tmp=os.path.isdir("/tmp"))
    assert locate("/w", [], {"TMPDIR": ""}).tmpdir is locate("/w", [], {}).tmpdir is None


def test_files_and_directories_are_told_apart(top: Path) -> None:
    file = touch(top / "file")
    os.link(file, top / "other")
    assert trace(str(file)) == Sight(str(file), FoundKind.FILE, names=2)
    assert trace(str(top)) == Sight(str(top), FoundKind.DIRECTORY)
    assert trace("/") == Sight("/", FoundKind.DIRECTORY)


@pytest.mark.parametrize("below", ["no/deep", "file/x", "file/.", "n" * 300])
def test_what_is_missing_keeps_its_name(top: Path, below: str) -> None:
    touch(top / "file")
    assert trace(f"{top}/{below}") == Sight(f"{top}/{below.removesuffix('/.')}", FoundKind.MISSING)


def test_every_link_on_the_way_is_recorded_where_it_lies(top: Path) -> None:
    touch(top / "real/deep/file")
    (top / "absolute").symlink_to(top / "real")
    (top / "relative").symlink_to("./absolute/../real/deep")
    assert trace(f"{top}/relative/file") == Sight(
        f"{top}/real/deep/file",
        FoundKind.FILE,
        (Crossing(f"{top}/relative", "./absolute/../real/deep"), Crossing(f"{top}/absolute", f"{top}/real")),
    )


def test_a_dangling_link_leads_to_what_is_missing(top: Path) -> None:
    (top / "link").symlink_to("gone")
    assert trace(f"{top}/link/x") == Sight(
        f"{top}/gone/x", FoundKind.MISSING, (Crossing(f"{top}/link", "gone"),)
    )


def test_links_in_a_circle_are_refused(top: Path) -> None:
    (top / "a").symlink_to("b")
    (top / "b").symlink_to("a")
    with pytest.raises(UsageError):
        trace(f"{top}/a")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_what_may_not_be_looked_at_is_out_of_sight(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(path: str) -> os.stat_result:
        raise OSError(code, "no", path)

    monkeypatch.setattr(os, "lstat", refuse)
    assert trace("/a/b") == Sight("/a/b", FoundKind.OUT_OF_SIGHT)


def test_a_failing_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> os.stat_result:
        raise OSError(errno.EIO, "broken", path)

    monkeypatch.setattr(os, "lstat", fail)
    with pytest.raises(OperationFailed):
        trace("/a")


def test_the_command_starts_where_its_directory_really_is(top: Path) -> None:
    (top / "link").symlink_to(top)
    bound = bind(full_access(), Where(str(top)))
    assert look(bound, "link") == DiskSnapshot(str(top))
    assert look(bound) == DiskSnapshot(str(top))


@pytest.mark.parametrize("line", ["gitdir: {}", "gitdir:{}\n", "gitdir: main/../main/git\nmore"])
def test_a_git_file_leads_to_its_directory_and_the_one_it_shares(top: Path, line: str) -> None:
    touch(top / "w/.git", line.format(top / "w/main/git"))
    touch(top / "w/main/git/commondir", "..\n")
    pointer = f"{top}/w/.git"
    assert seen(workspace_write(), top / "w").gitdirs == (
        GitDir(pointer, f"{top}/w/main/git"),
        GitDir(pointer, f"{top}/w/main"),
    )


@pytest.mark.parametrize("text", ["", "something else", "gitdir: a\0b"])
def test_a_git_file_that_points_nowhere_leads_nowhere(top: Path, text: str) -> None:
    touch(top / ".git", text)
    assert seen(workspace_write(), top).gitdirs == ()


def test_a_git_fifo_is_not_waited_for(top: Path) -> None:
    os.mkfifo(top / ".git")
    assert seen(workspace_write(), top).gitdirs == ()


def test_the_git_directory_of_a_worktree_inside_the_workspace_is_protected(top: Path) -> None:
    touch(top / ".git", "gitdir: repo/git/worktrees/one")
    touch(top / "repo/git/worktrees/one/commondir", "../..")
    lines = plan(workspace_write(), top).describe()
    assert f"{top}/repo/git is read-only" in lines
    assert f"{top}/repo cannot be renamed or removed" in lines


def test_patterns_match_what_is_there(top: Path) -> None:
    for name in (
        ".env",
        "a/.env",
        "a/b/.env",
        "a/b/c/.env",
        "a/env",
        ".hidden/.env",
        "secret.d/x",
        "secret.d/.env",
    ):
        touch(top / name)
    every = {".env", "a/.env", "a/b/.env", "a/b/c/.env", ".hidden/.env"}
    assert matched(top, f"{top}/**/.env", f"{top}/*.d") == {*every, "secret.d"}
    assert matched(top, f"{top}/**/.env", depth=2) == {".env", "a/.env", ".hidden/.env", "secret.d/.env"}
    assert matched(top, f"{top}/*/.env") == {"a/.env", ".hidden/.env", "secret.d/.env"}
    assert matched(top, f"{top}/a/env", f"{top}/none/*", f"{top}/a/env/*") == {"a/env"}


def test_a_scan_does_not_follow_links_to_directories(top: Path) -> None:
    touch(top / "w/a.env")
    touch(top / "out/b.env")
    (top / "w/out").symlink_to(top / "out")
    (top / "w/c.env").symlink_to(top / "out/b.env")
    (top / "root").symlink_to("w")
    assert matched(top / "w", f"{top}/w/**/*.env") == {"a.env", "c.env"}
    assert matched(top / "w", f"{top}/root/**/*.env") == {"a.env", "c.env"}
    bound = read_only().deny_glob(f"{top}/w/**/*.env")
    assert f"{top}/out/b.env is hidden" in plan(bound, top / "w").describe()


@pytest.mark.parametrize("pattern", ["/*", "/**/.env", "/*/x"])
def test_a_pattern_that_would_scan_the_whole_disk_is_refused(top: Path, pattern: str) -> None:
    with pytest.raises(UsageError, match="use a pattern with a non-root directory prefix"):
        matched(top, pattern)


@pytest.mark.parametrize(("limit", "match"), [("MAX_MATCHES", "match more"), ("MAX_SCANNED", "scan more")])
def test_a_scan_is_bounded(top: Path, monkeypatch: pytest.MonkeyPatch, limit: str, match: str) -> None:
    assert MAX_MATCHES == 8192
    monkeypatch.setattr(resolve, limit, 3)
    for number in range(3):
        touch(top / f"{number}.env")
    assert len(matched(top, f"{top}/*.env")) == 3
    touch(top / "3.env")
    with pytest.raises(SandboxUnavailable, match=match):
        matched(top, f"{top}/*.env")


@pytest.mark.parametrize(("code", "refused"), [(errno.EACCES, True), (errno.ENOENT, False)])
def test_a_directory_of_ours_that_cannot_be_searched_is_refused(
    top: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, refused: bool
) -> None:
    def fail(path: str) -> None:
        raise OSError(code, "no", path)

    monkeypatch.setattr(os, "scandir", fail)
    if refused:
        with pytest.raises(SandboxUnavailable):
            matched(top, f"{top}/*.env")
    else:
        assert matched(top, f"{top}/*.env") == set()


def test_a_directory_of_somebody_else_that_cannot_be_searched_is_empty_to_the_command_too(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EACCES, "no", path)

    monkeypatch.setattr(os, "scandir", fail)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert matched(top, f"{top}/*.env") == set()


def test_a_disk_that_fails_during_a_scan_is_an_error(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, "broken", path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(OperationFailed):
        matched(top, f"{top}/*.env")


def test_a_link_in_the_workspace_to_something_denied_is_refused(top: Path) -> None:
    touch(top / "out/key")
    (top / "w").mkdir()
    (top / "w/key").symlink_to(top / "out/key")
    with pytest.raises(SandboxUnavailable, match=f"crosses writable symlink {top}/w/key"):
        plan(workspace_write().deny(f"{top}/w/key"), top / "w")


def test_a_root_swapped_for_a_link_between_two_commands_is_refused(top: Path) -> None:
    (top / "w/sub").mkdir(parents=True)
    policy = workspace_write([f"{top}/w/sub"])
    assert f"{top}/w is writable" in plan(policy, top / "w").describe()
    (top / "w/sub").rename(top / "w/old")
    (top / "w/sub").symlink_to(top)
    with pytest.raises(SandboxUnavailable):
        plan(policy, top / "w")


def test_a_workspace_given_as_a_link_is_planned_where_it_leads(top: Path) -> None:
    touch(top / "real/.git/config")
    (top / "link").symlink_to("real")
    made = plan(workspace_write(), top / "link")
    assert made.cwd == f"{top}/real"
    assert f"{top}/real/.git is read-only" in made.describe()


def test_a_missing_temporary_directory_is_skipped(top: Path) -> None:
    bound = bind(workspace_write(), Where(str(top), (str(top),), tmpdir=f"{top}/gone", slash_tmp=False))
    made = plan_for(bound, look(bound))
    assert [step.path for step in made.steps] == [str(top)]
    assert all(path.startswith(f"{top}/.") for path in made.absent)


@pytest.mark.parametrize(
    "change", ["create .git", "root becomes a link", "link points elsewhere", "rename above"]
)
def test_a_glance_notices_whatever_another_look_would(top: Path, change: str) -> None:
    real = top / "above" / "ws"
    real.mkdir(parents=True)
    (top / "elsewhere" / "ws").mkdir(parents=True)
    (top / "way").symlink_to("above")
    root = top / "way" / "ws"
    bound = bind(workspace_write(), Where(str(root), (str(root),), slash_tmp=False))
    before, names = resolve.glance(bound)
    assert names is not None
    assert resolve.is_unchanged(names)
    match change:
        case "create .git":
            (root / ".git").mkdir()
        case "root becomes a link":
            real.rmdir()
            real.symlink_to(top / "elsewhere" / "ws")
        case "link points elsewhere":
            (top / "way").unlink()
            (top / "way").symlink_to("elsewhere")
        case "rename above":
            (top / "above").rename(top / "moved")
    assert not resolve.is_unchanged(names)
    assert resolve.look(bound) != before


def test_where_more_than_names_counts_a_glance_does_not_do(top: Path) -> None:
    where = Where(str(top), (str(top),), slash_tmp=False)
    assert resolve.glance(bind(workspace_write().deny_glob("*.key"), where))[1] is None
    touch(top / ".git", "gitdir: ../other")
    assert resolve.glance(bind(workspace_write(), where))[1] is None
