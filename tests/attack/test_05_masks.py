"""5: the host replaces a denied path while a command runs, and the mask on it is gone."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from tests.support import identity
from tests.support.exec_command import WAIT_S, Place

WAITS = "echo up; read go; cat {}"


def read_after_replacing(anyone: Place, path: Path, *flags: str) -> tuple[bytes, bytes]:
    """What a command gets to read at a path that is replaced, or made, while it runs."""
    with anyone.start(*flags, "--", "sh", "-c", WAITS.format(path)) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        fresh = path.with_name("fresh")
        fresh.write_text("new secret", "utf-8")
        os.chown(fresh, anyone.uid, anyone.uid)
        fresh.rename(path)
        out, err = child.communicate(b"go\n", timeout=WAIT_S)
        return out, err


def test_a_denied_file_that_is_replaced_stays_denied(anyone: Place) -> None:
    token = anyone.top / "token"
    token.write_text("secret", "utf-8")
    anyone.own()
    out, _ = read_after_replacing(anyone, token, "--deny", str(token))
    assert out == b""


def test_control_a_file_that_is_not_denied_can_be_read_when_it_was_replaced(anyone: Place) -> None:
    token = anyone.top / "token"
    token.write_text("secret", "utf-8")
    anyone.own()
    out, _ = read_after_replacing(anyone, token)
    assert out == b"new secret"


@pytest.mark.parametrize("name", [".netrc", ".config/git/credentials"])
def test_a_credential_that_is_renewed_stays_withheld(anyone: Place, name: str) -> None:
    """The door nobody named: logins are renewed by renaming, also two folders down."""
    place = anyone.top / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("secret", "utf-8")
    anyone.own()
    out, _ = read_after_replacing(anyone, place)
    assert out == b""


def test_what_lies_beside_a_denied_path_is_read_as_before(anyone: Place) -> None:
    """That an entry which is made later cannot be read is the price, and is declared."""
    for name in ("token", "plain", "folder/inner"):
        (anyone.top / name).parent.mkdir(exist_ok=True)
        (anyone.top / name).write_text(name, "utf-8")
    anyone.own()
    done = anyone.sh(
        f"cd {anyone.top}; cat plain folder/inner; echo; ls", "--deny", str(anyone.top / "token")
    )
    assert done.out.split() == ["plainfolder/inner", "folder", "outside", "plain", "token", "ws"]


# --- inside a writable root, where something new may be made beside a denied path: the mask is put back

PATIENT = 500_000  # looks of a command at what is open, seconds of them, before it is taken for left open
FEW = 2_000  # where it is to be left open

LOOK = """
import os, sys
def look(act, times):
    for _ in range(times):
        try:
            if not act(): return print("covered", flush=True)
        except OSError:
            return print("covered", flush=True)
    print("open", flush=True)
def reads(path):
    with open(path) as file: return "new secret" in file.read()
def writes(path):
    open(path + "/planted", "w").close()
    return True
"""


class Watched:
    """A command that looks at a path as often as it is told to, until that is covered."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child

    def asks(self, expression: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{expression}\n".encode())
        self._child.stdin.flush()
        return self._child.stdout.readline().decode().strip()

    def looks(self, act: str, path: Path, times: int = PATIENT) -> str:
        return self.asks(f"look(lambda: {act}({str(path)!r}), {times})")

    def wait(self) -> tuple[int, str]:
        """Until it is ended by somebody; its own end is not asked for."""
        assert self._child.stderr is not None
        return self._child.wait(WAIT_S), self._child.stderr.read().decode()

    def end(self) -> tuple[int, str]:
        _, err = self._child.communicate(timeout=WAIT_S)
        return self._child.returncode, err.decode()


@contextlib.contextmanager
def watched(anyone: Place, *flags: str) -> Iterator[Watched]:
    script = LOOK + "for line in sys.stdin: exec(line)\n"
    with anyone.start(*flags, "--", "/usr/bin/env", "python3", "-c", script) as child:
        inside = Watched(child)
        assert inside.asks("print('up', flush=True)") == "up"
        yield inside


def put(anyone: Place, path: Path, text: str = "new secret") -> None:
    """Somebody outside renames something over it that nobody inside has seen."""
    fresh = anyone.outside / "fresh"
    fresh.write_text(text, "utf-8")
    os.chown(fresh, anyone.uid, anyone.uid)
    fresh.rename(path)


def make_repository(anyone: Place, path: Path) -> None:
    (path / "hooks").mkdir(parents=True)
    identity.hand_over(path, anyone.uid)


@pytest.fixture
def secret(anyone: Place) -> Path:
    path = anyone.workspace / ".env"
    path.write_text("old secret", "utf-8")
    anyone.own()
    return path


def test_a_denied_file_in_the_workspace_that_is_replaced_is_covered_again(
    anyone: Place, secret: Path
) -> None:
    with watched(anyone, "--deny", str(secret)) as inside:
        put(anyone, secret)
        assert inside.looks("reads", secret) == "covered"
        assert inside.asks("open('beside', 'w').close(); print('made', flush=True)") == "made"
        assert inside.end()[0] == 0


def test_control_a_file_of_the_workspace_that_is_not_denied_is_read_when_it_was_replaced(
    anyone: Place, secret: Path
) -> None:
    with watched(anyone) as inside:
        put(anyone, secret)
        assert inside.looks("reads", secret, FEW) == "open"


def test_it_is_covered_however_often_it_is_replaced(anyone: Place, secret: Path) -> None:
    with watched(anyone, "--deny", str(secret)) as inside:
        for _ in range(100):
            put(anyone, secret)
        assert inside.looks("reads", secret) == "covered"
        for _ in range(20):
            put(anyone, secret)
            assert inside.looks("reads", secret) == "covered"


def test_a_repository_that_is_made_anew_is_read_only_again(anyone: Place) -> None:
    repository = anyone.workspace / ".git"
    with watched(anyone) as inside:
        assert inside.looks("writes", repository) == "covered"
        repository.rename(anyone.workspace / "old.git")
        make_repository(anyone, repository)
        assert inside.looks("writes", repository) == "covered"
        assert inside.looks("writes", anyone.workspace / "old.git") == "covered"
        assert inside.end()[0] == 0


def test_control_a_directory_that_is_made_anew_is_writable(anyone: Place) -> None:
    folder = anyone.workspace / "folder"
    with watched(anyone) as inside:
        make_repository(anyone, folder)
        assert inside.looks("writes", folder, FEW) == "open"


@pytest.mark.parametrize("where", ["ws/.env", "ws/deep/down/.env", "outside/.env", "outside/deep/.env"])
def test_a_denied_path_that_is_made_later_is_covered(anyone: Place, where: str) -> None:
    path = anyone.top / where
    with watched(anyone, "--deny", str(path)) as inside:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(anyone, path)
        assert inside.looks("reads", path) == "covered"


def test_a_denied_directory_that_is_made_later_is_covered(anyone: Place) -> None:
    path = anyone.workspace / "private"
    with watched(anyone, "--deny", str(path)) as inside:
        path.mkdir()
        put(anyone, path / "secret")
        assert inside.looks("reads", path / "secret") == "covered"


def test_what_the_command_itself_makes_at_a_denied_path_is_covered_too(anyone: Place) -> None:
    path = anyone.workspace / ".env"
    with watched(anyone, "--deny", str(path)) as inside:
        inside.asks(f"open({str(path)!r}, 'w').write('new secret'); print('made', flush=True)")
        assert inside.looks("reads", path) == "covered"


@pytest.mark.parametrize("where", ["ws", "outside"])
def test_a_denied_directory_that_becomes_a_link_is_covered_with_what_it_leads_to(
    anyone: Place, where: str
) -> None:
    private, elsewhere = anyone.workspace / "private", anyone.top / where / "elsewhere"
    private.mkdir()
    elsewhere.mkdir()
    anyone.own()
    put(anyone, elsewhere / "secret")
    with watched(anyone, "--deny", str(private)) as inside:
        private.rmdir()
        private.symlink_to(elsewhere if where == "outside" else "elsewhere")
        assert inside.looks("reads", private / "secret") == "covered"
        assert inside.looks("reads", elsewhere / "secret") == "covered"
        assert inside.end()[0] == 0


def test_a_denied_directory_that_becomes_a_link_to_another_mount_ends_the_command(anyone: Place) -> None:
    """A file system there may hang whoever looks, and a guard that hangs covers nothing."""
    private = anyone.workspace / "private"
    private.mkdir()
    anyone.own()
    with watched(anyone, "--deny", str(private)) as inside:
        private.rmdir()
        private.symlink_to("/dev/shm")
        code, err = inside.wait()
    assert code == 137
    assert "could not be covered again" in err


def test_a_repository_that_becomes_a_link_ends_the_command(anyone: Place) -> None:
    """Whoever may write where it leads may change what git runs: nothing may go on then, and it is said."""
    repository = anyone.workspace / ".git"
    with watched(anyone) as inside:
        repository.rename(anyone.workspace / "moved")
        repository.symlink_to("moved")
        code, err = inside.wait()
    assert code == 137
    assert "could not be covered again" in err


def exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


def swap_by_link(anyone: Place, path: Path) -> None:
    put(anyone, anyone.outside / "other")
    path.unlink()
    path.hardlink_to(anyone.outside / "other")


def swap_by_exchange(anyone: Place, path: Path) -> None:
    put(anyone, anyone.outside / "other")
    exchange(anyone.outside / "other", path)


def swap_folder(anyone: Place, path: Path) -> None:
    path.parent.rename(anyone.outside / "gone")
    path.parent.mkdir()
    put(anyone, path)


def swap_full_folder(anyone: Place, path: Path) -> None:
    (anyone.outside / "full").mkdir()
    put(anyone, anyone.outside / "full" / path.name)
    exchange(anyone.outside / "full", path.parent)


def swap_root(anyone: Place, path: Path) -> None:
    anyone.workspace.rename(anyone.outside / "gone")
    path.parent.mkdir(parents=True)
    put(anyone, path)


@pytest.mark.parametrize("swap", [swap_by_link, swap_by_exchange, swap_folder, swap_full_folder, swap_root])
def test_whatever_way_it_is_replaced(anyone: Place, swap: Callable[[Place, Path], None]) -> None:
    """Doors nobody named: a hard link, an exchange, the directory itself, the workspace."""
    path = anyone.workspace / "sub" / ".env"
    path.parent.mkdir()
    path.write_text("old secret", "utf-8")
    anyone.own()
    with watched(anyone, "--deny", str(path)) as inside:
        swap(anyone, path)
        assert inside.looks("reads", path) == "covered"


def test_a_directory_that_was_replaced_is_not_moved_away_from_its_mask(anyone: Place) -> None:
    path = anyone.workspace / "sub" / ".env"
    path.parent.mkdir()
    path.write_text("old secret", "utf-8")
    anyone.own()
    with watched(anyone, "--deny", str(path)) as inside:
        swap_folder(anyone, path)
        assert inside.looks("reads", path) == "covered"
        moves = f"look(lambda: os.rename({str(path.parent)!r}, 'moved') is None, 1)"
        assert inside.asks(moves) == "covered"
        assert path.parent.is_dir()


def test_no_directory_that_the_command_closes_keeps_a_mask_away(anyone: Place) -> None:
    path = anyone.workspace / "sub" / ".env"
    path.parent.mkdir()
    path.write_text("old secret", "utf-8")
    anyone.own()
    with watched(anyone, "--deny", str(path)) as inside:
        inside.asks(f"os.chmod({str(path.parent)!r}, 0); print('closed', flush=True)")
        path.parent.chmod(0o300)
        put(anyone, path)
        inside.asks(f"os.chmod({str(path.parent)!r}, 0o700); print('open', flush=True)")
        assert inside.looks("reads", path) == "covered"


def test_no_flood_of_names_keeps_a_mask_away(anyone: Place, secret: Path) -> None:
    """What appears in a directory is told in a queue, which whoever makes names can fill."""
    flood = """
import threading
def flood():
    while True:
        for name in ("a", "b" * 200, "c"):
            open(name, "w").close()
            os.rename(name, name + "2")
for _ in range(4): threading.Thread(target=flood, daemon=True).start()
print("floods", flush=True)
"""
    with watched(anyone, "--deny", str(secret)) as inside:
        assert inside.asks(f"exec({flood!r})") == "floods"
        for _ in range(5):
            put(anyone, secret)
            assert inside.looks("reads", secret) == "covered"
        inside.asks("os._exit(0)")


def test_a_guard_that_is_killed_takes_its_command_along(anyone: Place, secret: Path) -> None:
    with watched(anyone, "--deny", str(secret)) as inside:
        put(anyone, secret)
        assert inside.looks("reads", secret) == "covered"
        (guard,) = find_guards(str(secret))
        os.kill(guard, signal.SIGKILL)
        code, err = inside.wait()
    assert code == 137
    assert "could not be covered again" in err


def find_guards(mark: str) -> list[int]:
    """A guard has the arguments of the `exec` that it is a fork of."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            named = entry.name.isdigit() and (entry / "comm").read_bytes() == b"holdfast-masks\n"
            if named and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_nothing_is_left_of_a_guard(anyone: Place, secret: Path) -> None:
    with watched(anyone, "--deny", str(secret)) as inside:
        put(anyone, secret)
        assert inside.looks("reads", secret) == "covered"
        assert len(find_guards(str(secret))) == 1
        assert inside.end()[0] == 0
    assert find_guards(str(secret)) == []


# --- the other ways to it


def test_landlock_alone_grants_nothing_to_what_replaces_it(anyone: Place, secret: Path) -> None:
    with watched(anyone, "--backend", "landlock", "--deny", str(secret)) as inside:
        put(anyone, secret)
        assert inside.looks("reads", secret) == "covered"


def test_bubblewrap_says_that_it_covers_nothing_again(anyone: Place, secret: Path) -> None:
    done = anyone.run("--backend", "bwrap", "--deny", str(secret), "--json", "--", "true")
    weakened = json.loads(done.err.splitlines()[-1])["enforcement"]["weakened"]
    assert "what is denied or protected is not covered again when a process outside replaces it" in weakened


def test_a_watched_command_has_a_guard_too(anyone: Place, secret: Path) -> None:
    with watched(anyone, "--watch", "--deny", str(secret)) as inside:
        put(anyone, secret)
        assert inside.looks("reads", secret) == "covered"


async def test_a_command_of_a_server_has_a_guard_too(tmp_path: Path) -> None:
    """The first one is forked for its order, the second is a spare process that waited for one."""
    secret, other = tmp_path / "ws" / ".env", tmp_path / "ws" / "sub" / ".env"
    other.parent.mkdir(parents=True)
    for path in (secret, other):
        path.write_text("old secret", "utf-8")
    policy = holdfast.Policy.workspace_write(str(secret.parent)).deny(str(secret)).deny(str(other))
    script = LOOK + "print('up', flush=True)\nfor line in sys.stdin: exec(line)\n"
    async with holdfast.connect([sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]) as env:
        for number in range(3):
            process = await env.start(
                ["/usr/bin/env", "python3", "-c", script], cwd=str(secret.parent), policy=policy, stdin=True
            )
            for path in (secret, other):
                fresh = tmp_path / f"fresh{number}"
                fresh.write_text("new secret", "utf-8")
                fresh.rename(path)
                await process.write(f"look(lambda: reads({str(path)!r}), {PATIENT})\n".encode())
            await process.close_stdin()
            done = await process.wait()
            assert done.stdout.split() == [b"up", b"covered", b"covered"]
