"""A login whose refresh token is spent by using it, shared by its user and any number of workers.

One worker at a time may renew it: the one that holds the lock has the refresh token, and what its CLI makes
of it comes back into the user's file at once. The others have a copy that can be used but not renewed; it is
brought up to date whenever the user's file changes, and the next of them takes over when the first has ended.
So nobody presents a refresh token that somebody else has spent already.

What a worker leaves in its copy is taken for hostile: it is read without following or waiting for anything,
within a bound, and only a renewal of what was there goes further (`catalog/hostfiles.renew`). The user's file
is replaced whole, by a name of ours, and not at all when it has changed since it was last looked at: then the
user's own renewal or log-out wins. A login that is a link is lent, and never written.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.hostfiles import (
    HostFile,
    NotRenewed,
    Renewal,
    expires_at,
    lend,
    renew,
    write_settings,
)
from holdfast.agents.worker.ownfiles import FoundLogin, read_login, read_regular, remove_below
from holdfast.local.atomicfile import open_below, write_below, write_new
from holdfast.local.lock import AGAIN_S, open_lock, take_lock

log = logging.getLogger(__name__)

FILE: Final = "login.json"  # in the folder of a worker, for whoever takes it over
WAIT_S: Final = 30.0  # for another worker to renew what has expired; its CLI does so with its first request
SOON_S: Final = 60.0  # what expires sooner has expired
MAX_RENEWALS: Final = 64  # by one worker; a CLI renews once in hours


class LoginState(msgspec.Struct, kw_only=True):
    """What must be known of a worker's login to go on with it. No token is in it."""

    host: str
    into: str
    renews: bool = False  # it holds the lock
    seen: str = ""  # digest of the user's file when both were the same
    left: str = ""  # digest of the worker's copy when it was last looked at
    renewals: int = 0


class SharedLogin:
    """The login of one worker. Nothing here raises but `begin`."""

    def __init__(self, file: HostFile, renewal: Renewal, state: str, saved: LoginState, lock: int) -> None:
        self.saved = saved
        self._file, self._renewal, self._state, self._lock = file, renewal, state, lock
        self._looked: tuple[object, object] = (None, None)
        self._locked = False

    @classmethod
    def find(cls, agent: Agent, saved: LoginState, *, state: str, user: str, home: Path) -> "SharedLogin":
        """Raises OSError when there is no place for its lock."""
        file = next(one for one in agent.host_files if one.into == saved.into)
        if file.renewal is None:
            raise AssertionError(f"{file.path} is no login")
        name = hashlib.sha256(os.fsencode(os.path.realpath(saved.host))).hexdigest()[:32]
        lock, _ = open_lock(f"login-{name}", user=user, home=home)
        return cls(file, file.renewal, state, saved, lock)

    async def begin(self) -> None:
        """Place a copy. When it has expired and another worker may renew it, that is waited for.

        Raises:
            OSError, ValueError: there is no login any more, or it cannot be placed.
        """
        until = time.monotonic() + WAIT_S
        while True:
            self._take_lock()
            data = self._read_host()
            expires = expires_at(read_login(data), self._renewal)
            late = expires is not None and expires < time.time() + SOON_S
            if self.saved.renews or not late or time.monotonic() > until:
                break
            await asyncio.sleep(AGAIN_S)
        self._give(data)

    def adopt(self) -> None:
        """Go on where a supervisor before us was."""
        if self.saved.renews:
            self._locked = take_lock(self._lock)  # if another worker has it by now, both may renew

    def words(self) -> str:
        who = "this worker renews it" if self.saved.renews else "it is lent, another one renews it"
        if os.path.islink(self.saved.host):
            who = "it is lent: a link is never written"
        return f"{self.saved.host} ({self._file.what}): {self._file.way}; {who}"

    def sync(self) -> bool:
        """Bring back what was renewed, or bring in what changed; whether there is something to save."""
        try:
            return self._sync()
        except (OSError, ValueError) as exc:
            log.warning("a login could not be kept up to date", extra={"reason": str(exc)})
            return False

    def end(self) -> None:
        """The worker is gone: the last look at its copy, which is removed."""
        if self._lock >= 0:
            self.sync()
            remove_below(self._state, self._file.parts)
            os.close(self._lock)
            self._lock = -1

    # --- either direction

    def _sync(self) -> bool:
        took_over = not self.saved.renews and self._take_lock()
        looked = (
            _sign(os.path.realpath(self.saved.host)),
            _sign(os.path.join(self._state, *self._file.parts)),
        )
        if looked == self._looked and not took_over:
            return False
        self._looked = looked
        try:
            data = self._read_host()
        except FileNotFoundError:
            return False  # its user logged out; what the worker has is its own affair
        if took_over or _digest(data) != self.saved.seen:
            self._give(data)
            return True
        return self.saved.renews and self._take_back(data)

    def _give(self, data: bytes) -> None:
        document = read_login(data)
        if not self.saved.renews:
            document = lend(document, self._renewal)
        given = write_settings(FILE, document).encode()
        write_below(self._state, self._file.parts, given)
        self.saved.seen, self.saved.left = _digest(data), _digest(given)

    def _take_back(self, data: bytes) -> bool:
        """`data` is what the user's file holds."""
        try:
            left = self._read_copy()
            if _digest(left) == self.saved.left:
                return False
            self.saved.left = _digest(left)
            renewed = renew(read_login(data), read_login(left), self._renewal, now=time.time())
        except FileNotFoundError:
            return False  # it is just being replaced, or its CLI logged out
        except (NotRenewed, ValueError, OSError) as exc:
            log.warning("what a worker left as its login is not taken", extra={"reason": str(exc)})
            return True
        if renewed is None:
            return True
        if self.saved.renewals >= MAX_RENEWALS:
            log.warning("a worker renews its login again and again: no more of it is taken")
            return True
        self.saved.renewals += 1
        self._put_back(data, write_settings(FILE, renewed).encode())
        return True

    def _put_back(self, before: bytes, after: bytes) -> None:
        above, name = os.path.split(self.saved.host)
        with open_below(os.path.realpath(above), ()) as folder:
            hidden = write_new(folder, after)
            try:
                if read_regular(name, self._file.limit, folder=folder, follow=False) != before:
                    log.warning("a login was changed by its user meanwhile, and stays as it is")
                    return
                os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(hidden, dir_fd=folder)
            os.fsync(folder)
        self.saved.seen = _digest(after)
        log.info("a worker's CLI renewed its login", extra={"reason": self.saved.host})

    def _read_host(self) -> bytes:
        return read_regular(self.saved.host, self._file.limit)

    def _read_copy(self) -> bytes:
        *above, name = self._file.parts
        with open_below(self._state, tuple(above)) as folder:
            return read_regular(name, self._file.limit, folder=folder, follow=False)

    def _take_lock(self) -> bool:
        """Whether this worker may renew from now on."""
        if not self._locked and not os.path.islink(self.saved.host):
            self._locked = take_lock(self._lock)
        self.saved.renews = self._locked
        return self._locked


def login_of(found: FoundLogin) -> LoginState:
    return LoginState(host=found.path, into=found.file.into)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sign(path: str) -> tuple[int, ...] | None:
    """What changes with a file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
