"""Landlock: a ruleset of the kernel's that a process puts on itself and on all its descendants.

Rights are granted per directory and add up downwards: nothing can be taken away below a grant.
Each right belongs to the ABI that introduced it. We ask for named rights, never for whatever the
kernel has: a newer kernel must not change what a policy means, so an ABI that we do not know
counts as the newest one that we do.

Standard library only: the launcher imports this.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from ctypes import c_int, c_int32, c_size_t, c_uint, c_uint64, c_void_p
from typing import Final

from holdfast.sandbox.kernel import numbered

# linux/landlock.h
EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_CHAR: Final = 1 << 6
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SOCK: Final = 1 << 9
MAKE_FIFO: Final = 1 << 10
MAKE_BLOCK: Final = 1 << 11
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15
RESOLVE_UNIX: Final = 1 << 16
_SCOPE_ABSTRACT_UNIX: Final = 1 << 0
_SCOPE_SIGNAL: Final = 1 << 1
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1

NEWEST_KNOWN_ABI: Final = 9
REFER_ABI: Final = 2  # before it, no file could be moved between directories inside a domain
SCOPE_ABI: Final = 6
UNIX_ABI: Final = 9

_ADDED: Final = (  # ABI -> what it added
    (1, (1 << 13) - 1),
    (REFER_ABI, REFER),
    (3, TRUNCATE),
    (5, IOCTL_DEV),
    (UNIX_ABI, RESOLVE_UNIX),
)
_FOR_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX

LIST: Final = READ_DIR
READ: Final = READ_FILE | READ_DIR | EXECUTE
DEVICES: Final = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
WRITE: Final = (
    READ
    | WRITE_FILE
    | TRUNCATE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
)

FAKE_ABI: Final = "HOLDFAST_FAKE_LANDLOCK_ABI"  # tests only: be an older kernel


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("handled_access_fs", c_uint64), ("handled_access_net", c_uint64), ("scoped", c_uint64))


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", c_uint64), ("parent_fd", c_int32))


_create_ruleset = numbered(444, c_void_p, c_size_t, c_uint)
_add_rule = numbered(445, c_int, c_int, c_void_p, c_uint)
_restrict_self = numbered(446, c_int, c_uint)


def abi() -> int:
    """The newest ABI that both the kernel and we know; 0 when Landlock is absent, off or filtered."""
    try:
        version = _create_ruleset(None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0
    return min(version, NEWEST_KNOWN_ABI, int(os.environ.get(FAKE_ABI, NEWEST_KNOWN_ABI)))


def handled(abi: int, *, unix: bool) -> int:
    """The file-system rights that this ABI can withhold; with `unix` also connecting by path."""
    rights = 0
    for since, added in _ADDED:
        if since <= abi:
            rights |= added
    return rights if unix else rights & ~RESOLVE_UNIX


def scoped(abi: int) -> int:
    """Signals and abstract unix sockets stay inside, where the ABI can do that."""
    return _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= SCOPE_ABI else 0


def _size(abi: int) -> int:
    """How much of the attributes this ABI knows; a larger structure would be refused."""
    return 24 if abi >= SCOPE_ABI else 8


def fitting(rights: int, handled: int, *, directory: bool) -> int:
    """These rights as a rule may name them: only handled ones, and on a file only a file's."""
    return rights & handled & (~0 if directory else _FOR_FILES)


def restrict(grants: Iterable[tuple[str, int]], *, abi: int, files: bool = True, unix: bool = False) -> None:
    """Confine the calling thread and its descendants to these grants.

    A path that we can not open is left out: a descendant could not open it either. Needs
    no_new_privs. Without `files` only the scopes apply; `unix` withholds connecting to unix
    sockets by path, except to those made inside.
    """
    handled_fs = handled(abi, unix=unix) if files else 0
    attr = _RulesetAttr(handled_fs, 0, scoped(abi))
    ruleset = _create_ruleset(ctypes.byref(attr), _size(abi), 0)
    try:
        for path, rights in grants if files else ():
            _grant(ruleset, path, rights, handled_fs)
        _restrict_self(ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int, handled_fs: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError):
        return
    try:
        allowed = fitting(rights, handled_fs, directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        if allowed:
            rule = _PathBeneathAttr(allowed, fd)
            _add_rule(ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)
