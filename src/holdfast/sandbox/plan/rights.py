"""The rights that Landlock knows, and which ABI brought each. Pure module.

Rights are granted per directory and add up downwards: nothing can be taken away below a grant.
We ask for named rights, never for whatever the kernel has: a newer kernel must not change what a
policy means, so an ABI that we do not know counts as the newest one that we do.

The launcher imports this.
"""

from holdfast.annotations import Final

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
SCOPE_SIGNAL: Final = 1 << 1

NEWEST_KNOWN_ABI: Final = 9
REFER_ABI: Final = 2  # before it, no file could be moved between directories inside a domain
TRUNCATE_ABI: Final = 3  # before it, whoever owns a file can cut it short, wherever it is
SCOPE_ABI: Final = 6
UNIX_ABI: Final = 9

_ADDED: Final = (  # ABI -> what it added
    (1, (1 << 13) - 1),
    (REFER_ABI, REFER),
    (TRUNCATE_ABI, TRUNCATE),
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
EVERYTHING: Final = (1 << 17) - 1


def list_handled(abi: int, *, unix: bool) -> int:
    """The file-system rights that this ABI can withhold; with `unix` also connecting by path."""
    rights = 0
    for since, added in _ADDED:
        if since <= abi:
            rights |= added
    return rights if unix else rights & ~RESOLVE_UNIX


def list_scoped(abi: int) -> int:
    """Signals and abstract unix sockets stay inside, where the ABI can do that."""
    return _SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL if abi >= SCOPE_ABI else 0


def limit_rights(rights: int, handled: int, *, directory: bool) -> int:
    """These rights as a rule may name them: only handled ones, and on a file only a file's."""
    return rights & handled & (~0 if directory else _FOR_FILES)
