"""Landlock: a kernel ruleset that a process puts on itself and on all its descendants.

The rights that can be granted are in `plan/grants.py`.

Standard library only: the launcher imports this.
"""

import ctypes
import errno
import os
import stat
from ctypes import c_int, c_int32, c_size_t, c_uint, c_uint64, c_void_p

from holdfast.light import Final, Iterable
from holdfast.sandbox.kernel.kernel import numbered, open_path
from holdfast.sandbox.plan.grants import (
    NEWEST_KNOWN_ABI,
    REFER,
    SCOPE_ABI,
    SCOPE_SIGNAL,
    limit_rights,
    list_handled,
    list_scoped,
)

# linux/landlock.h
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1

_LEFT_OUT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP})

FAKE_ABI: Final = "HOLDFAST_FAKE_LANDLOCK_ABI"  # tests only: behave like an older kernel


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("handled_access_fs", c_uint64), ("handled_access_net", c_uint64), ("scoped", c_uint64))


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", c_uint64), ("parent_fd", c_int32))


_create_ruleset = numbered(444, c_void_p, c_size_t, c_uint)
_add_rule = numbered(445, c_int, c_int, c_void_p, c_uint)
_restrict_self = numbered(446, c_int, c_uint)


def abi() -> int:
    """The newest ABI that both the kernel and we know; 0 if Landlock is absent, off or filtered."""
    try:
        return usable_abi()
    except OSError:
        return 0


def usable_abi() -> int:
    """The newest ABI that both the kernel and we know.

    Raises:
        OSError: Landlock is absent, off or filtered.
    """
    version = _create_ruleset(None, 0, _CREATE_RULESET_VERSION)
    version = min(version, NEWEST_KNOWN_ABI, int(os.environ.get(FAKE_ABI, NEWEST_KNOWN_ABI)))
    if version < 1:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return version


def _size(abi: int) -> int:
    """The size of the attributes that this ABI knows; a larger structure would be refused."""
    return 24 if abi >= SCOPE_ABI else 8


def restrict(grants: Iterable[tuple[str, int]], *, abi: int, files: bool = True, unix: bool = False) -> None:
    """Confine the calling thread and its descendants to these grants.

    A path that we cannot open is left out: a descendant could not open it either. So is a path with a
    symbolic link on the way: the link was put there later, and leads elsewhere. Needs no_new_privs. Without
    `files` only the scopes apply. `unix` also forbids connecting to unix sockets by path, except to those
    made inside.
    """
    handled_fs = list_handled(abi, unix=unix) if files else 0
    _put_on(grants if files else (), handled_fs, list_scoped(abi), abi)


def keep_signals_in(*, files: bool) -> None:
    """Let the calling thread and its descendants signal only each other; nothing else is restricted.

    Needs no_new_privs, and an ABI that has scopes. `files` says whether an inner domain restricts files: as
    soon as one does, all domains that do not grant REFER forbid moving files between directories.
    """
    _put_on([("/", REFER)] if files else [], REFER if files else 0, SCOPE_SIGNAL, SCOPE_ABI)


def _put_on(grants: Iterable[tuple[str, int]], handled_fs: int, scoped: int, abi: int) -> None:
    attr = _RulesetAttr(handled_fs, 0, scoped)
    ruleset = _create_ruleset(ctypes.byref(attr), _size(abi), 0)
    try:
        for path, rights in grants:
            _grant(ruleset, path, rights, handled_fs)
        _restrict_self(ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int, handled_fs: int) -> None:
    try:
        fd = open_path(path)
    except OSError as exc:
        if exc.errno in _LEFT_OUT:
            return
        raise
    try:
        allowed = limit_rights(rights, handled_fs, directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        if allowed:
            rule = _PathBeneathAttr(allowed, fd)
            _add_rule(ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)
