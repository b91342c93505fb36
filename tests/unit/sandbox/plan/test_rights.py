import pytest

from holdfast.sandbox.plan.rights import (
    DEVICES,
    EXECUTE,
    IOCTL_DEV,
    LIST,
    MAKE_DIR,
    NEWEST_KNOWN_ABI,
    READ,
    READ_DIR,
    READ_FILE,
    REFER,
    RESOLVE_UNIX,
    TRUNCATE,
    WRITE,
    WRITE_FILE,
    limit_rights,
    list_handled,
    list_scoped,
)
from tests.support.rows import every_row

FIRST = (1 << 13) - 1


@every_row(
    ("abi", "rights"),
    [
        (0, 0),
        (1, FIRST),
        (2, FIRST | REFER),
        (3, FIRST | REFER | TRUNCATE),
        (4, FIRST | REFER | TRUNCATE),
        (5, FIRST | REFER | TRUNCATE | IOCTL_DEV),
        (8, FIRST | REFER | TRUNCATE | IOCTL_DEV),
        (9, FIRST | REFER | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX),
    ],
)
def test_each_abi_handles_what_it_knows(abi: int, rights: int) -> None:
    assert list_handled(abi, unix=True) == rights
    assert list_handled(abi, unix=False) == rights & ~RESOLVE_UNIX


@pytest.mark.parametrize(("abi", "scopes"), [(1, 0), (5, 0), (6, 3), (9, 3)])
def test_signals_and_abstract_sockets_stay_inside_from_abi_6(abi: int, scopes: int) -> None:
    assert list_scoped(abi) == scopes


@every_row("abi", range(1, NEWEST_KNOWN_ABI + 1))
@every_row("rights", [LIST, READ, DEVICES, WRITE])
@every_row("directory", [True, False])
def test_a_rule_never_names_a_right_that_the_ruleset_does_not_handle(
    abi: int, rights: int, directory: bool
) -> None:
    named = limit_rights(rights, list_handled(abi, unix=False), directory=directory)
    assert named & ~list_handled(abi, unix=False) == 0
    assert named & ~rights == 0


def test_a_rule_on_a_file_names_only_rights_of_files() -> None:
    every_right = list_handled(NEWEST_KNOWN_ABI, unix=True)
    assert limit_rights(WRITE, every_right, directory=False) == READ_FILE | EXECUTE | WRITE_FILE | TRUNCATE
    assert limit_rights(LIST, every_right, directory=False) == 0


def test_reading_does_not_write_and_writing_reads() -> None:
    assert READ == READ_FILE | READ_DIR | EXECUTE
    assert READ & (WRITE_FILE | MAKE_DIR | TRUNCATE) == 0
    assert READ & ~WRITE == 0


def test_no_grant_reaches_unix_sockets_of_the_host() -> None:
    assert (READ | WRITE | DEVICES | LIST) & RESOLVE_UNIX == 0
