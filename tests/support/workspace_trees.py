"""Trees as a hostile worker could leave them: one for each seed, the same each time.

Links lead to a place of the user's own (`Victim`), repositories name a program that leaves a mark, and names,
depths, modes and kinds are whatever a file system takes.
"""

import contextlib
import os
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECRET: Final = "of the user's own 7c1e"  # what no reader may ever see
DEEP: Final = 230  # directories one in another; more than are looked into
MANY: Final = 400  # entries of a large directory; tests look at fewer


class Victim:
    """What lies outside a workspace: files that links lead to, and a mark that a planted program makes."""

    def __init__(self, place: Path) -> None:
        self.place, self.mark = place / "victim", place / "ESCAPED"
        self.place.mkdir()
        (self.place / "secret").write_text(SECRET, "utf-8")
        (self.place / "folder").mkdir()
        (self.place / "folder" / "secret").write_text(SECRET, "utf-8")
        (self.place / "repository" / ".git").mkdir(parents=True)
        self.program = place / "program"
        self.program.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat\n", "utf-8")
        self.program.chmod(0o755)
        self._before = self._snapshot()

    def _snapshot(self) -> list[tuple[str, int, int, int]]:
        found = []
        for path in sorted(self.place.rglob("*")):
            status = path.lstat()
            found.append((str(path), status.st_ino, status.st_mode, status.st_mtime_ns))
        return found

    def check(self) -> None:
        """Raises AssertionError when something got out."""
        assert not self.mark.exists(), "a planted program ran"
        assert self._snapshot() == self._before, "something outside was changed"


@dataclass(frozen=True)
class _Grower:
    chance: random.Random
    victim: Victim
    left: list[int]

    def grow(self, folder: bytes, depth: int) -> None:
        for _ in range(self.chance.randint(0, 9)):
            self.left[0] -= 1
            if self.left[0] < 0:
                return
            path = os.path.join(folder, self.name())
            with contextlib.suppress(OSError):  # a name that is taken, or too long
                self.chance.choice(_KINDS)(self, path, depth)

    def name(self) -> bytes:
        if self.chance.random() < 0.4:
            return b"f%d" % self.chance.randrange(20)
        if self.chance.random() < 0.5:
            return self.chance.choice(_NAMES)
        size = self.chance.choice([1, 3, 20, 255])
        taken = bytes(self.chance.randrange(1, 256) for _ in range(size)).replace(b"/", b"\x1b")
        return taken if taken not in (b".", b"..") else b"dots"

    def target(self) -> bytes:
        inside = [b".", b"..", b"f1", b"loop", b"\xff", b"a" * 300, b"/dev/zero", b"/proc/self/root"]
        outside = [self.victim.place / name for name in ("secret", "folder", "repository", "missing")]
        return self.chance.choice([*inside, *(os.fsencode(path) for path in outside)])


def _file(grower: _Grower, path: bytes, _depth: int) -> None:
    chance = grower.chance
    data = chance.choice(
        [
            b"",
            b"text\n",
            b"no end",
            b"\x1b]0;t\x07\r\n",
            b"\xff\xfe\x00",
            b"a\nb\n" * 500,
            chance.randbytes(300),
        ]
    )
    with open(path, "xb") as file:
        file.write(data)
        if chance.random() < 0.05:
            file.truncate(chance.choice([1 << 17, (1 << 17) + 1, 1 << 40]))
    os.chmod(path, chance.choice([0o644, 0o644, 0o755, 0o000, 0o4755, 0o222]))


def _folder(grower: _Grower, path: bytes, depth: int) -> None:
    os.mkdir(path)
    if depth < 6:
        grower.grow(path, depth + 1)
    if grower.chance.random() < 0.1:
        os.chmod(path, grower.chance.choice([0o000, 0o555, 0o300, 0o1777]))


def _chain(grower: _Grower, path: bytes, _depth: int) -> None:
    if grower.chance.random() > 0.1:
        return
    name = grower.chance.choice([b"d", b"\xfc" * 40])
    os.mkdir(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(DEEP):
            os.mkdir(name, dir_fd=fd)
            inner = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
    finally:
        os.close(fd)


def _many(grower: _Grower, path: bytes, _depth: int) -> None:
    if grower.chance.random() > 0.1:
        return
    os.mkdir(path)
    for number in range(MANY):
        os.mkdir(b"%b/%d" % (path, number))


def _link(grower: _Grower, path: bytes, _depth: int) -> None:
    os.symlink(grower.target(), path)


def _pipe(_grower: _Grower, path: bytes, _depth: int) -> None:
    os.mkfifo(path)


def _socket(_grower: _Grower, path: bytes, _depth: int) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)


def _rules(grower: _Grower, path: bytes, _depth: int) -> None:
    above = os.path.dirname(path)
    name = grower.chance.choice([b".gitignore", b".gitattributes", b".gitmodules"])
    if grower.chance.random() < 0.2:
        grower.chance.choice([_link, _pipe, _folder])(grower, os.path.join(above, name), 9)
        return
    text = b"*\n!f*\n" if name == b".gitignore" else b"* filter=x diff=x merge=x text eol=crlf ident\n"
    with open(os.path.join(above, name), "xb") as file:
        file.write(text + grower.chance.randbytes(8))


def _repository(grower: _Grower, path: bytes, _depth: int) -> None:
    """In all shapes: a directory, bare, a file that points elsewhere, a link."""
    chance, program = grower.chance, os.fsencode(grower.victim.program)
    shape = chance.choice(["folder", "bare", "file", "link"])
    inner = os.path.dirname(path) if shape == "bare" else os.path.join(os.path.dirname(path), b".git")
    if shape == "file":
        with open(inner, "xb") as file:
            file.write(b"gitdir: " + grower.target() + b"\n")
        return
    if shape == "link":
        os.symlink(os.fsencode(grower.victim.place / "repository" / ".git"), inner)
        return
    if os.path.islink(inner):  # of another shape: what is outside is not ours to change
        return
    for name in (b"objects", b"refs", b"hooks", b"info"):
        os.makedirs(os.path.join(inner, name), exist_ok=True)
    files = {
        b"HEAD": b"ref: refs/heads/main\n",
        b"info/attributes": b"* filter=x\n",
        b"info/exclude": b"*\n",
        b"config": b"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %b\n\thooksPath = hooks\n"
        b'[filter "x"]\n\tsmudge = %b\n\tclean = %b\n[diff]\n\texternal = %b\n' % ((program,) * 4),
    }
    for name, data in files.items():
        with open(os.path.join(inner, name), "xb") as file:
            file.write(data)
    os.symlink(program, os.path.join(inner, b"hooks", b"post-checkout"))


def _outbox(grower: _Grower, path: bytes, depth: int) -> None:
    """What a worker may do to the directory that we keep in its workspace."""
    own = os.path.join(os.path.dirname(path), b".holdfast")
    if grower.chance.random() < 0.2:
        os.symlink(grower.target(), own)
        return
    if any(os.path.islink(place) for place in (own, own + b"/outbox", own + b"/answers")):
        return
    for name in (b"", b"outbox", b"answers"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(own, name))
    for number in range(grower.chance.randrange(4)):
        place = os.path.join(own, b"outbox", b"e%d.json" % number)
        grower.chance.choice([_file, _link, _pipe, _socket, _folder])(grower, place, depth + 5)


_NAMES: Final = (
    *(
        b"bad\xff",
        "grün".encode("latin-1"),
        b"two\nlines",
        b"\x1b]0;x\x07",
        b"-rf",
        b":(exclude)f1",
        b":/",
        b" ",
    ),
    *(
        b".git ",
        b".GIT",
        b"HEAD",
        b"config",
        b".env",
        b".env\xff",
        b"a.txt",
        b"\\",
        b"*",
        b"loop",
        b"con\ttab",
    ),
    *(
        "\u202etxt".encode(),
        b"\xed\xa0\x80",
        b"node_modules",
        b"__pycache__",
        b".copy",
        b"run.json",
        b"x" * 255,
    ),
)
_KINDS: Final[Sequence[Callable[[_Grower, bytes, int], None]]] = (
    *(_file, _file, _file, _file, _folder, _folder, _folder, _link, _link, _pipe, _socket),
    *(_rules, _repository, _outbox, _chain, _many),
)


def grow(seed: int, place: Path, victim: Victim) -> None:
    """A tree below a directory that is empty."""
    grower = _Grower(random.Random(seed), victim, [60])  # noqa: S311 - the same each time
    grower.grow(os.fsencode(place), 0)
