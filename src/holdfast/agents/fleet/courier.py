"""Carries letters of a worker on another machine about its task here, and their answers there.

    WORKSPACE/.holdfast/   the same on both machines, created anew for every worker
      run.json             its grant: where it reports to, and the key that it signs with
      outbox/ID.json       a letter, written atomically by the worker
      answers/ID.json      its answer

A letter is a signed envelope (`handoff/`) that is not opened here. Its file goes into the outbox of the
directory that was carried, and its reader trusts it no more than anything that a worker could have put there.
On the other machine every file is accessed in a sandbox that contains only this directory. So whatever the
worker links or swaps, nothing else of that machine is read or written. Every step can be repeated, because a
letter has an id.
"""

import contextlib
import errno
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.agents.worker.launching import Handover
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import NotFound, OperationFailed, UsageError
from holdfast.local.atomicfile import open_folder, write_below
from holdfast.local.shown import is_text
from holdfast.local.trees import TreeWalk, read_below, read_regular

MAX_LETTER: Final = 512 * 1024  # bytes of an envelope; a larger file is not a letter, and stays where it is
MAX_ANSWER: Final = 16 << 20  # bytes of an answer to a worker
MAX_AT_ONCE: Final = 64  # letters carried in one round, so that the link has room for other traffic
MAX_LETTERS: Final = 4096  # of one worker: a loop on the other machine must not fill this disk
MAX_BESIDE: Final = 256 << 20  # bytes of task, answers and attachments that are sent there
MAX_FILES: Final = 200  # files that are sent there; a task has at most 50 attachments
GRANT: Final = "run.json"
OUTBOX: Final = "outbox"
ANSWERS: Final = "answers"
_LETTER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\.json")  # a name that is used on both machines


class Courier:
    """The courier of one worker. `there` is the worker's directory for letters on the other machine."""

    def __init__(self, handover: Handover, cwd: str) -> None:
        self._here = Path(handover.folder)
        self._grant = handover.grant
        self.there = posixpath.join(cwd, self._here.name)
        self._carried: set[str] = set()
        # Not `workspace_write`: reading is restricted to that directory, too.
        self._policy = Policy.from_toml(
            f"[filesystem]\n':minimal' = 'read'\n{_quote(self.there)} = 'write'\n"
        )

    async def lay_out(self, environment: Environment) -> None:
        """Copy the files beside the worker's work to the other machine, with its grant.

        Raises:
            UsageError: it is too much.
            HoldfastError: the transfer fails.
        """
        files = environment.files
        await files.remove(self.there, recursive=True, missing_ok=True)  # a committed link, for example
        for name in ("", OUTBOX, ANSWERS):
            await files.make_directory(posixpath.join(self.there, name).rstrip("/"), parents=True)
        await files.write(f"{self.there}/.gitignore", b"*\n", policy=self._policy)
        for path, data in _read_beside(self._here):
            folder = posixpath.dirname(path)
            if folder:
                await files.make_directory(f"{self.there}/{folder}", parents=True, policy=self._policy)
            await files.write(f"{self.there}/{path}", data, policy=self._policy)
        await files.write(f"{self.there}/{GRANT}", self._grant.encode(), policy=self._policy)

    async def carry(self, environment: Environment) -> int:
        """Carry answers there and letters here; return the number of letters.

        Raises:
            HoldfastError: the link is lost, or the remote directory cannot be read; the caller may retry.
            OSError: a letter cannot be written here; the caller may retry.
        """
        await self._bring_answers(environment)
        return await self._fetch_letters(environment)

    async def _fetch_letters(self, environment: Environment) -> int:
        try:
            listed = await environment.files.list(f"{self.there}/{OUTBOX}", policy=self._policy)
        except NotFound:
            return 0
        names = sorted(one.file_name for one in listed if _LETTER.fullmatch(one.file_name))
        fresh = [name for name in names if name not in self._carried][:MAX_AT_ONCE]
        for name in fresh:
            if len(self._carried) >= MAX_LETTERS:
                raise OperationFailed(f"it has said more than {MAX_LETTERS} things")
            data = await self._read(environment, f"{self.there}/{OUTBOX}/{name}")
            if data is not None:
                write_below(self._here, (OUTBOX, name), data)
            self._carried.add(name)
        return len(fresh)

    async def _read(self, environment: Environment, path: str) -> bytes | None:
        """Read a letter; None if it is too large or gone."""
        try:
            if (await environment.files.stat(path, policy=self._policy)).size > MAX_LETTER:
                return None
            data = await environment.files.read(path, policy=self._policy)
        except NotFound:
            return None
        return data if len(data) <= MAX_LETTER else None

    async def _bring_answers(self, environment: Environment) -> None:
        for name, data in _read_answers(self._here, self._carried):
            await environment.files.write(f"{self.there}/{ANSWERS}/{name}", data, policy=self._policy)
            with contextlib.suppress(NotFound):
                await environment.files.remove(f"{self.there}/{OUTBOX}/{name}", policy=self._policy)
            _remove(self._here / ANSWERS / name)
            self._carried.discard(name)


def _read_beside(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a dispatcher put there for the worker, without earlier letters and answers."""
    left, count = MAX_BESIDE, 0
    for entry in TreeWalk(folder, most=MAX_FILES, enter=lambda path: path not in (OUTBOX, ANSWERS)):
        if entry.is_folder or entry.path in (GRANT, ".gitignore"):
            continue
        try:
            data = read_below(folder, entry.path, left + 1)
        except OSError:
            continue
        if data is None or not is_text(entry.path):
            continue
        left, count = left - len(data), count + 1
        if left < 0 or count > MAX_FILES:
            raise UsageError("what is attached to the task is more than is carried to another machine")
        yield entry.path, data


def _read_answers(folder: Path, names: set[str]) -> list[tuple[str, bytes]]:
    found = []
    try:
        with open_folder(str(folder)) as top, open_folder(ANSWERS, top) as answers:
            for name in sorted(names):
                with contextlib.suppress(FileNotFoundError):
                    data = read_regular(name, answers, MAX_ANSWER)
                    if data is not None:
                        found.append((name, data))
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
    return found


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError), open_folder(str(path.parent)) as above:
        os.unlink(path.name, dir_fd=above)


def _quote(path: str) -> str:
    """Quote a path as a TOML key. Raises UsageError for a path that cannot be one."""
    if any(ord(char) < 0x20 or char in "\"\\'\x7f" for char in path) or not is_text(path):
        raise UsageError(f"{path!r} cannot be named in a policy")
    return f'"{path}"'
