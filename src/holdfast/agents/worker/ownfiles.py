"""The user's files that an agent CLI gets: read from the home, and placed into its relocated state.

The record of the CLI says which files, and in which way (`catalog/hostfiles.py`). This module reads them
carefully: a worker that was allowed to write to the home may have left a link there, and links in a worker's
own state are never followed.
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
    """A login with a refresh token: its description, and the path of the user's file."""

    file: HostFile
    path: str


@dataclass(slots=True)
class OwnFiles:
    """The files that enter, by place below the state directory; `words` describe them for people."""

    texts: dict[str, str] = field(default_factory=dict, repr=False)
    links: dict[str, str] = field(default_factory=dict)  # to files that are shown in place
    login: FoundLogin | None = None
    secrets: list[str] = field(default_factory=list, repr=False)
    logins: list[str] = field(default_factory=list)  # paths of the files that hold `secrets`
    words: list[str] = field(default_factory=list)

    def add_texts(self, files: Mapping[str, str]) -> None:
        """Add our files. A file that the user's settings also have is merged, and ours win."""
        for place, text in files.items():
            if place in self.texts:
                both = merge(read_settings(place, self.texts[place]), read_settings(place, text))
                text = write_settings(place, both)
            self.texts[place] = text


def read_own_files(agent: Agent, *, home: str, environment: Mapping[str, str]) -> OwnFiles:
    """Read this user's files for this CLI. Unusable files are left out, with a note in `words`."""
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
    """Read a whole file. Never blocks, even on a pipe or a device.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a regular file, or larger than `limit`.
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
    """Parse a login file. Raises ValueError if it is invalid."""
    return read_settings("login.json", data.decode("utf-8"))


def link_below(top: str, parts: Place, target: str) -> None:
    """Make a link at `parts` below `top`, replacing any file there; an existing directory stays.

    Raises:
        OSError: it cannot be made.
    """
    with open_below(top, parts[:-1], make=True) as above:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=above)
        os.symlink(target, parts[-1], dir_fd=above)


def remove_below(top: str, parts: Place) -> None:
    """Remove a file or link, if it exists and no component above it is a link."""
    with contextlib.suppress(OSError), open_below(top, parts[:-1]) as above:
        os.unlink(parts[-1], dir_fd=above)
