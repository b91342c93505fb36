"""The write protocol of configuration files, and what a directory is part of, on a real file system."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agentconfig import files, host
from holdfast.agentconfig.document import Unparsable, scan
from holdfast.errors import InvalidRequest, NotFound, OperationFailed
from tests.support.patience import patient

WRITERS = 10
LIMIT_S = patient(60)
ADD_LINE = """
import sys
from pathlib import Path
from holdfast.agentconfig import files
print("ready", flush=True)
sys.stdin.readline()
files.edit(Path(sys.argv[1]), lambda text: text + sys.argv[2], follow=False)
"""


def add(text: str) -> str:
    return text + "b = 2\n"


def backups(home: Path) -> list[Path]:
    return sorted(home.glob("config.toml.*.bak"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_bytes(b"a = 1\r\n")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("follow", [True, False])
def test_a_change_keeps_every_other_byte_and_the_file_to_its_owner(config: Path, follow: bool) -> None:
    edited = files.edit(config.parent, add, follow=follow)
    assert config.read_bytes() == b"a = 1\r\nb = 2\n"
    assert mode(config) == 0o600
    assert edited.changed
    assert edited.backup is not None
    assert edited.backup.read_bytes() == b"a = 1\r\n"
    assert mode(edited.backup) == 0o600


def test_what_is_the_same_is_not_written_but_closed_to_others(config: Path) -> None:
    os.utime(config, ns=(10**18, 10**18))
    before = config.stat()
    edited = files.edit(config.parent, lambda text: text, follow=False)
    assert not edited.changed
    assert (config.stat().st_mtime_ns, config.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert mode(config) == 0o600
    assert backups(config.parent) == []


def test_a_file_that_is_not_there_is_made_and_nothing_is_backed_up(tmp_path: Path) -> None:
    assert files.read(tmp_path, follow=False) == ""
    assert files.edit(tmp_path, add, follow=False).backup is None
    assert (tmp_path / "config.toml").read_bytes() == b"b = 2\n"


def test_the_three_newest_contents_are_kept_each_once(config: Path) -> None:
    def turn(text: str) -> str:
        return f"a = {(int(text.split()[2]) + 1) % 5}\n"

    for _ in range(6):
        files.edit(config.parent, turn, follow=False)
    kept = {path.read_bytes() for path in backups(config.parent)}
    assert kept == {b"a = 4\n", b"a = 0\n", b"a = 1\n"}
    assert {path.name for path in config.parent.iterdir()} == {
        "config.toml",
        files.LOCK,
        *(path.name for path in backups(config.parent)),
    }


def test_what_only_we_wrote_is_not_backed_up(tmp_path: Path) -> None:
    ours = '# >>> holdfast sandbox v1 >>>\nsandbox_mode = "read-only"\n# <<< holdfast sandbox v1 <<<\n'
    (tmp_path / "config.toml").write_text(ours)
    files.edit(tmp_path, lambda text: text + "\n", follow=False)
    assert backups(tmp_path) == []


def test_in_the_home_of_a_task_no_link_is_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.write_text("a = 1\n")
    (home / "config.toml").symlink_to(outside)
    with pytest.raises(InvalidRequest):
        files.edit(home, add, follow=False)
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(InvalidRequest):
        files.edit(tmp_path / "link", add, follow=False)
    assert outside.read_text() == "a = 1\n"


def test_a_lock_that_an_earlier_task_made_a_link_is_not_followed(config: Path, tmp_path: Path) -> None:
    (config.parent / files.LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(OperationFailed):
        files.edit(config.parent, add, follow=False)
    assert not (tmp_path / "victim").exists()


def test_in_a_home_of_ones_own_the_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "dotfiles"
    home.mkdir()
    kept.mkdir()
    (kept / "codex.toml").write_text("a = 1\n")
    (home / "config.toml").symlink_to("../dotfiles/codex.toml")
    assert files.edit(home, add, follow=True).path == kept / "codex.toml"
    assert (home / "config.toml").is_symlink()
    assert (kept / "codex.toml").read_text() == "a = 1\nb = 2\n"


def test_a_file_that_may_only_be_read_is_replaced(config: Path) -> None:
    config.chmod(0o400)
    files.edit(config.parent, add, follow=False)
    assert config.read_bytes().endswith(b"b = 2\n")


def test_what_is_no_file_or_no_text_is_left_alone(tmp_path: Path) -> None:
    for name, make in (("pipe", os.mkfifo), ("directory", os.mkdir)):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "config.toml")
        with pytest.raises(InvalidRequest):
            files.edit(tmp_path / name, add, follow=False)
    (tmp_path / "config.toml").write_bytes(b"a = '\xff'\n")
    with pytest.raises(InvalidRequest):
        files.edit(tmp_path, add, follow=False)
    with pytest.raises(NotFound):
        files.edit(tmp_path / "nowhere", add, follow=False)


def test_a_change_that_fails_or_is_refused_leaves_nothing_behind(config: Path) -> None:
    def parsed(text: str) -> str:
        return scan(text + "[").text

    def refuse(_text: str) -> None:
        raise InvalidRequest("no")

    with pytest.raises(Unparsable):
        files.edit(config.parent, parsed, follow=False)
    with pytest.raises(InvalidRequest):
        files.edit(config.parent, add, follow=False, validate=refuse)
    assert config.read_bytes() == b"a = 1\r\n"
    assert {path.name for path in config.parent.iterdir()} == {"config.toml", files.LOCK}


def test_a_writer_without_our_lock_is_noticed_and_its_change_kept(config: Path) -> None:
    others = iter(["c = 3\n"])

    def validate(_text: str) -> None:
        for line in others:
            config.write_text(f"a = 1\n{line}")

    files.edit(config.parent, add, follow=False, validate=validate)
    assert config.read_text() == "a = 1\nc = 3\nb = 2\n"


def test_a_writer_that_never_stops_is_not_fought(config: Path) -> None:
    def validate(text: str) -> None:
        config.write_text(text + "\n")

    with pytest.raises(OperationFailed):
        files.edit(config.parent, add, follow=False, validate=validate)
    assert not list(config.parent.glob("*.tmp"))


def test_a_lock_that_is_held_is_waited_for_with_a_bound(config: Path) -> None:
    with (config.parent / files.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OperationFailed):
            files.edit(config.parent, add, follow=False, wait_s=0.05)
    assert config.read_bytes() == b"a = 1\r\n"


def test_of_ten_writers_at_once_none_is_lost(config: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", ADD_LINE, str(config.parent), f"w{number} = 1\n"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            writer.communicate(timeout=LIMIT_S)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    lines = config.read_text().splitlines()
    assert lines[0] == "a = 1"
    assert sorted(lines[1:]) == sorted(f"w{number} = 1" for number in range(WRITERS))


def git(*arguments: str | Path, cwd: Path) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", *identity, *map(str, arguments)], cwd=cwd, check=True, timeout=LIMIT_S)


def test_a_directory_outside_of_any_repository_is_its_own_project(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to("real")
    assert host.find_project(link).names[:2] == (str(link), str(tmp_path / "real"))
    assert host.find_project(link).git == ()


def test_an_empty_git_directory_that_was_left_behind_gives_nothing_to_write(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "task").mkdir()
    found = host.find_project(tmp_path / "task")
    assert found.names == (str(tmp_path / "task"), str(tmp_path))
    assert found.git == ()


def test_a_repository_is_found_from_below_with_what_it_brings(tmp_path: Path) -> None:
    git("init", "-q", "repo", cwd=tmp_path)
    below = tmp_path / "repo" / "a" / "b"
    below.mkdir(parents=True)
    layer = tmp_path / "repo" / ".codex" / "config.toml"
    layer.parent.mkdir()
    layer.touch()
    found = host.find_project(below)
    assert found.names == (str(below), str(tmp_path / "repo"))
    assert found.git == (str(tmp_path / "repo" / ".git"),)
    assert found.layers == (str(layer),)


def test_a_linked_worktree_has_both_repositories_and_both_directories(tmp_path: Path) -> None:
    git("init", "-q", "main", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path / "main")
    git("worktree", "add", "-q", tmp_path / "tree", cwd=tmp_path / "main")
    found = host.find_project(tmp_path / "tree")
    assert found.names == (str(tmp_path / "tree"), str(tmp_path / "main"))
    assert found.git == (
        str(tmp_path / "main" / ".git"),
        str(tmp_path / "main" / ".git" / "worktrees" / "tree"),
    )


def test_a_pointer_to_a_directory_that_does_not_point_back_is_not_believed(tmp_path: Path) -> None:
    victim, task = tmp_path / "victim", tmp_path / "task"
    victim.mkdir()
    (task / "fake").mkdir(parents=True)
    (task / ".git").write_text(f"gitdir: {victim}\n")
    assert host.find_project(task).git == ()
    (task / ".git").write_text("gitdir: fake\n")
    (task / "fake" / "gitdir").write_text(str(task / ".git"))
    (task / "fake" / "commondir").write_text(str(victim))
    assert host.find_project(task).git == ()
    (task / ".git").unlink()
    (task / ".git").symlink_to(victim)
    assert host.find_project(task).git == ()
