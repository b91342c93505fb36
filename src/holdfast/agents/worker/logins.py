"""Shares a login with a single-use refresh token between its user and any number of workers.

One worker at a time may renew the login. The worker that holds the lock has the refresh token, and the
renewal by its CLI is copied into the user's file at once. The other workers have a copy that can be used but
not renewed. It is updated whenever the user's file changes. When the first worker ends, the next one takes
over. So no worker presents a refresh token that another one has already used.

The content of a worker's copy is treated as hostile. It is read with a bound, without following links and
without blocking, and only a renewal of the previous tokens is accepted (`catalog/hostfiles.renew`). The
user's file is replaced atomically, through a temporary file of ours, and only if it has not changed since we
read it. If it has, the user's own renewal or logout wins. A login that is a link is lent, and never written.
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

FILE: Final = "login.json"  # in the folder of a worker, for the next supervisor
WAIT_S: Final = 30.0  # for another worker to renew an expired login; its CLI does so with its first request
SOON_S: Final = 60.0  # a login that expires sooner counts as expired
MAX_RENEWALS: Final = 64  # by one worker; a CLI renews every few hours


class LoginState(msgspec.Struct, kw_only=True):
    """The saved state of a worker's login, for the next supervisor. It holds no token."""

    host: str
    into: str
    renews: bool = False  # it holds the lock
    seen: str = ""  # digest of the user's file when both were last in sync
    left: str = ""  # digest of the worker's copy when it was last read
    renewals: int = 0


class SharedLogin:
    """The login of one worker. After `find`, only `begin` raises."""

    def __init__(self, file: HostFile, renewal: Renewal, state: str, saved: LoginState, lock: int) -> None:
        self.saved = saved
        self._file, self._renewal, self._state, self._lock = file, renewal, state, lock
        self._looked: tuple[object, object] = (None, None)
        self._locked = False

    @classmethod
    def find(cls, agent: Agent, saved: LoginState, *, state: str, user: str, home: Path) -> "SharedLogin":
        """Create the login of a worker. Raises OSError if there is no place for its lock."""
        file = next(one for one in agent.host_files if one.into == saved.into)
        if file.renewal is None:
            raise AssertionError(f"{file.path} is no login")
        name = hashlib.sha256(os.fsencode(os.path.realpath(saved.host))).hexdigest()[:32]
        lock, _ = open_lock(f"login-{name}", user=user, home=home)
        return cls(file, file.renewal, state, saved, lock)

    async def begin(self) -> None:
        """Place a copy. If it has expired and another worker may renew it, wait for that, up to WAIT_S.

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
        """Continue where a previous supervisor stopped."""
        if self.saved.renews:
            self._locked = take_lock(self._lock)  # if another worker has it now, both may renew

    def words(self) -> str:
        who = "this worker renews it" if self.saved.renews else "it is lent, another one renews it"
        if os.path.islink(self.saved.host):
            who = "it is lent: a link is never written"
        return f"{self.saved.host} ({self._file.what}): {self._file.way}; {who}"

    def sync(self) -> bool:
        """Copy a renewal back, or the user's change in; return whether `saved` must be stored."""
        try:
            return self._sync()
        except (OSError, ValueError) as exc:
            log.warning("a login could not be kept up to date", extra={"reason": str(exc)})
            return False

    def end(self) -> None:
        """Sync a last time after the worker has ended, and remove its copy."""
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
            return False  # the user logged out; the worker's copy is left alone
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
        """Accept a renewal from the worker's copy; `data` is the content of the user's file."""
        try:
            left = self._read_copy()
            if _digest(left) == self.saved.left:
                return False
            self.saved.left = _digest(left)
            renewed = renew(read_login(data), read_login(left), self._renewal, now=time.time())
        except FileNotFoundError:
            return False  # the CLI is just replacing the file, or logged out
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
        """Try to take the lock; return whether this worker may renew from now on."""
        if not self._locked and not os.path.islink(self.saved.host):
            self._locked = take_lock(self._lock)
        self.saved.renews = self._locked
        return self._locked


def login_of(found: FoundLogin) -> LoginState:
    return LoginState(host=found.path, into=found.file.into)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sign(path: str) -> tuple[int, ...] | None:
    """Return a signature that changes with a file; None if it cannot be read."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
