"""What of its user's files an agent CLI is given: read from the home, and placed into its relocated state.

Which files, and which way, its record says (`catalog/hostfiles.py`). Here they are looked at with care: a
link in the home may have been left by a worker that was allowed to write there, and what a worker keeps in
its own state is never followed.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.hostfiles import (
    Document,
    HostFile,
    Place,
    Way,
    find_keys,
    find_tokens,
    is_renewable,
    is_settings,
    merge,
    read_settings,
    select_settings,
    write_settings,
)
from holdfast.local.atomicfile import open_below
from holdfast.sandbox.policy.credentials import is_credential

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FoundLogin:
    """A login that is renewed by using it: what it is, and where the user's is."""

    file: HostFile
    path: str


@dataclass(slots=True)
class OwnFiles:
    """What enters, by its place below the state directory; `words` tell a person."""

    texts: dict[str, str] = field(default_factory=dict, repr=False)
    links: dict[str, str] = field(default_factory=dict)  # to what is shown where it is
    login: FoundLogin | None = None
    secrets: list[str] = field(default_factory=list, repr=False)
    logins: list[str] = field(default_factory=list)  # files with what is in there
    words: list[str] = field(default_factory=list)

    def add_texts(self, files: Mapping[str, str]) -> None:
        """Ours besides; where the user's settings have the same file, it holds both, and ours win."""
        for place, text in files.items():
            if place in self.texts:
                both = merge(read_settings(place, self.texts[place]), read_settings(place, text))
                text = write_settings(place, both)
            self.texts[place] = text


def read_own_files(agent: Agent, *, home: str, environment: Mapping[str, str]) -> OwnFiles:
    """What this user has for this CLI. What cannot be used is left out, and said."""
    own = OwnFiles()
    places = {file: file.find(home, environment) for file in agent.host_files}
    own_places = {os.path.realpath(path) for path in places.values() if not os.path.islink(path)}
    for file, path in places.items():
        if not os.path.lexists(path):
            continue
        real = os.path.realpath(path)
        if is_credential(real) and real not in own_places:
            own.words.append(f"{path} is left out: it leads to {real}")
        elif file.way is Way.SHOWN:
            own.links[file.into] = path
            own.words.append(f"{path} ({file.what}): {file.way}")
        else:
            try:
                _take(own, file, path)
            except (OSError, ValueError) as exc:
                why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
                own.words.append(f"{path} ({file.what}) is left out: {why}")
    return own


def _take(own: OwnFiles, file: HostFile, path: str) -> None:
    text = read_regular(path, file.limit).decode("utf-8")
    if is_credential(path) and file.renewal is None and not file.keep:
        own.secrets += find_keys(text)
        own.logins.append(path)
    if not is_settings(path):
        own.texts[file.into] = text
        own.words.append(f"{path} ({file.what}): {file.way}")
        return
    document = read_settings(path, text)
    if (file.renewal is not None or file.keep) and (found := find_tokens(document)):
        own.secrets += found
        own.logins.append(path)
    if file.renewal is not None and is_renewable(document, file.renewal):
        own.login = FoundLogin(file, path)
        return
    kept, left = select_settings(file, document)
    own.texts[file.into] = write_settings(path, kept)
    without = f", without {', '.join(left)}" if left else ""
    own.words.append(f"{path} ({file.what}): {Way.COPIED}{without}")


def read_regular(name: str, limit: int, *, folder: int | None = None, follow: bool = True) -> bytes:
    """A file, whole. Nothing is waited for, whatever stands there instead.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no file, or larger than `limit`.
    """
    fd = os.open(name, _READ | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
    with open(fd, "rb", 0) as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        data = b"" if status.st_size > limit else _read_at_most(file.fileno(), limit + 1)
        if status.st_size > limit or len(data) > limit:
            raise ValueError(f"it is larger than {limit} bytes")
    return data


def _read_at_most(fd: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(fd, limit)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def read_login(data: bytes) -> Document:
    """Raises ValueError."""
    return read_settings("login.json", data.decode("utf-8"))


def link_below(top: str, parts: Place, target: str) -> None:
    """A link at `parts` below `top`, in place of whatever file is there; a directory there stays.

    Raises:
        OSError: it cannot be made.
    """
    with open_below(top, parts[:-1], make=True) as above:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=above)
        os.symlink(target, parts[-1], dir_fd=above)


def remove_below(top: str, parts: Place) -> None:
    """A file or link, if it is there and nothing on the way to it is a link."""
    with contextlib.suppress(OSError), open_below(top, parts[:-1]) as above:
        os.unlink(parts[-1], dir_fd=above)
