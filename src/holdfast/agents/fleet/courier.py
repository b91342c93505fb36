"""What a worker on another machine says about its task, carried here, and what it is answered, carried there.

    WORKSPACE/.holdfast/   there as here, made anew for every worker
      run.json             its grant: where it is heard, and what it signs with
      outbox/ID.json       a letter, put there whole by the worker
      answers/ID.json      its answer

A letter is a signed envelope (`handoff/`) that is not opened here: its file goes into the outbox of the
directory that was carried, where its reader takes it for no more than what any worker could have put there.
Over there every file is reached in a sandbox that holds this one directory, so whatever the worker links or
swaps, nothing else of that machine is read or written. All of it can be done twice: a letter has its id.
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

MAX_LETTER: Final = 512 * 1024  # bytes: of an envelope; a larger one is none, and stays where it is
MAX_ANSWER: Final = 16 << 20  # bytes of what a worker is told
MAX_AT_ONCE: Final = 64  # letters carried in one go, so that the link has room for others
MAX_LETTERS: Final = 4096  # of one worker: a loop over there does not fill this disk
MAX_BESIDE: Final = 256 << 20  # bytes of task, answers and attachments that go there
MAX_FILES: Final = 200  # likewise; a task has at most 50 attachments
GRANT: Final = "run.json"
OUTBOX: Final = "outbox"
ANSWERS: Final = "answers"
_LETTER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\.json")  # a name that is used on both machines


class Courier:
    """Of one worker. `there` is the directory that belongs to it over there."""

    def __init__(self, handover: Handover, cwd: str) -> None:
        self._here = Path(handover.folder)
        self._grant = handover.grant
        self.there = posixpath.join(cwd, self._here.name)
        self._carried: set[str] = set()
        # Not `workspace_write`: reading, too, stays in that directory.
        self._policy = Policy.from_toml(
            f"[filesystem]\n':minimal' = 'read'\n{_quote(self.there)} = 'write'\n"
        )

    async def lay_out(self, environment: Environment) -> None:
        """Put what lies here beside the worker's directory beside it over there, with its grant.

        Raises:
            UsageError: it is too much.
            HoldfastError: it does not get there.
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
        """One round: letters here, answers there; how many letters.

        Raises:
            HoldfastError: the link is lost, or the directory over there cannot be read; to be done again.
            OSError: what came cannot be written here; likewise.
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
        """None for what is too large to be a letter, or gone."""
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
    """What a dispatcher put there for the worker; not what an earlier one said, or was told."""
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
    """A TOML key; a place whose name cannot be one is not used."""
    if any(ord(char) < 0x20 or char in "\"\\'\x7f" for char in path) or not is_text(path):
        raise UsageError(f"{path!r} cannot be named in a policy")
    return f'"{path}"'
