"""What Landlock is told for a plan, on a tree that is a table."""

import pytest

from holdfast.sandbox.plan import grants as module
from holdfast.sandbox.plan.grants import (
    DEVICES,
    EVERYTHING,
    EXECUTE,
    IOCTL_DEV,
    LIST,
    MAKE_DIR,
    MAKE_REG,
    NEWEST_KNOWN_ABI,
    READ,
    READ_DIR,
    READ_FILE,
    REFER,
    RESOLVE_UNIX,
    TRUNCATE,
    WRITE,
    WRITE_FILE,
    TooManyGrants,
    find_closed,
    find_unlisted,
    grants,
    limit_rights,
    list_handled,
    list_scoped,
    read_around,
)
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind
from tests.support.rows import every_row

TREE = {
    "/": ["dev", "etc", "home", "proc"],
    "/home": ["other", "ws"],
    "/home/ws": [".git", "conf", "file", "src"],
    "/home/ws/conf": ["key", "plain"],
    "/home/ws/src": ["main"],
}


def told(*steps: tuple[StepKind, str], base: Base = Base.HOST, degraded: bool = False) -> dict[str, int]:
    """The grants for files, without those that every command gets."""
    found = grants(made(*steps, base=base), lambda path: TREE.get(path, []), degraded=degraded)
    return {path: rights for path, rights in found if not path.startswith(("/dev", "/proc"))}


def made(*steps: tuple[StepKind, str], base: Base = Base.HOST) -> Plan:
    return Plan(base, tuple(Step(kind, path) for kind, path in steps), network_off=True, cwd="/home/ws")


WS = (StepKind.WRITABLE, "/home/ws")
GIT = (StepKind.READ_ONLY, "/home/ws/.git")
KEY = (StepKind.MASK_FILE, "/home/ws/conf/key")
CONF = (StepKind.MASK_DIRECTORY, "/home/ws/conf")


def test_the_root_is_never_granted_as_a_whole_for_the_devices_are_below_it() -> None:
    assert told() == {"/": LIST, "/etc": READ, "/home": READ}


def test_a_writable_root_without_exceptions_is_granted_whole() -> None:
    assert told(WS)["/home/ws"] == WRITE
    assert "/home/ws/src" not in told(WS)


def test_around_something_read_only_the_neighbours_are_granted_one_by_one() -> None:
    found = told(WS, GIT)
    assert found["/home/ws"] == READ
    assert {path for path, rights in found.items() if rights == WRITE} == {
        *("/home/ws/conf", "/home/ws/file", "/home/ws/src")
    }


def test_a_pin_changes_no_access() -> None:
    assert told(WS, (StepKind.PIN, "/home/ws/conf")) == told(WS)


def test_around_a_hidden_file_directories_are_listed_and_nothing_else() -> None:
    found = told(WS, KEY)
    assert (found["/"], found["/home/ws"]) == (LIST, LIST)
    assert not {"/home", "/home/ws/conf"} & set(found)  # what is above them reaches them
    assert found["/home/ws/conf/plain"] == WRITE
    assert found["/home/other"] == READ
    assert "/home/ws/conf/key" not in found


def test_around_a_hidden_directory_nothing_is_listed() -> None:
    found = told(WS, CONF)
    assert not {"/", "/home", "/home/ws", "/home/ws/conf"} & set(found)
    assert found["/home/ws/src"] == WRITE


def test_below_something_hidden_more_may_be_granted() -> None:
    found = told(WS, CONF, (StepKind.READABLE, "/home/ws/conf/plain"))
    assert found["/home/ws/conf/plain"] == READ
    assert "/home/ws/conf" not in found


def test_an_empty_base_shows_only_what_is_named() -> None:
    assert told((StepKind.READABLE, "/etc"), WS, base=Base.EMPTY) == {"/etc": READ, "/home/ws": WRITE}


def test_an_untouched_base_is_granted_everything() -> None:
    plan = Plan(Base.UNTOUCHED, (), network_off=True, cwd="/")
    assert grants(plan, lambda _: [], degraded=False) == [("/", EVERYTHING)]
    assert find_closed(plan, degraded=False) == find_unlisted(plan, degraded=False) == ()


def test_a_missing_protected_name_does_not_close_its_directory() -> None:
    plan = Plan(Base.HOST, (Step(*WS),), network_off=True, cwd="/", absent=("/home/ws/.codex",))
    assert ("/home/ws", WRITE) in grants(plan, lambda path: TREE.get(path, []), degraded=False)


def test_degraded_read_only_is_given_up_and_hidden_is_not() -> None:
    found = told(WS, GIT, degraded=True)
    assert found["/home/ws"] == WRITE
    found = told(WS, GIT, CONF, degraded=True)
    assert (found["/"], found["/home/ws"]) == (LIST, LIST)
    assert (found["/home/ws/.git"], found["/home/ws/src"]) == (WRITE, WRITE)
    assert "/home/ws/conf" not in found


def test_of_devices_a_command_gets_what_it_needs_whatever_the_steps_say() -> None:
    steps = ((StepKind.WRITABLE, "/dev"), (StepKind.WRITABLE, "/dev/sda"), (StepKind.WRITABLE, "/proc/sys"))
    found = dict(grants(made(*steps), lambda path: TREE.get(path, []), degraded=False))
    assert {"/dev/null", "/dev/urandom", "/dev/shm", "/proc"} <= set(found)
    assert not {"/dev", "/dev/sda", "/dev/pts", "/dev/ptmx", "/proc/sys"} & set(found)
    assert found["/proc"] & (WRITE_FILE | MAKE_REG) == 0
    assert found["/proc"] & READ_FILE
    degraded = dict(grants(made(*steps), lambda path: TREE.get(path, []), degraded=True))
    assert set(degraded) - set(found) == {"/dev/pts", "/dev/ptmx"}


def test_a_writable_root_directory_still_leaves_devices_and_kernel_out() -> None:
    found = told((StepKind.WRITABLE, "/"))
    assert found == {"/": LIST, "/etc": WRITE, "/home": WRITE}


def test_too_many_entries_are_refused_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GRANTS", 13)
    assert len(grants(made(WS), lambda path: TREE.get(path, []), degraded=False)) == 12
    with pytest.raises(TooManyGrants):
        grants(made(WS, GIT), lambda path: TREE.get(path, []), degraded=False)


def test_what_is_closed_or_dark_is_known_without_looking() -> None:
    assert find_closed(made(WS), degraded=False) == find_unlisted(made(WS), degraded=False) == ()
    assert find_closed(made(WS, GIT, KEY), degraded=False) == ("/home/ws", "/home/ws/conf")
    assert find_closed(made(WS, GIT, KEY), degraded=True) == ("/home/ws", "/home/ws/conf")
    assert find_closed(made(WS, GIT), degraded=True) == ()
    assert find_unlisted(made(WS, KEY), degraded=False) == ()
    assert find_unlisted(made(WS, CONF), degraded=False) == ("/", "/home", "/home/ws")
    assert find_unlisted(made(WS, CONF), degraded=True) == ()


OTHER = (StepKind.MASK_FILE, "/home/other")


def around(*steps: tuple[StepKind, str]) -> dict[str, int]:
    return dict(read_around(made(*steps), lambda path: TREE.get(path, [])))


def test_a_second_layer_reads_everything_where_nothing_outside_the_roots_is_hidden() -> None:
    assert around(WS, CONF) == {"/": READ}


def test_a_second_layer_goes_around_what_is_hidden_outside_the_roots() -> None:
    assert around(WS, OTHER) == {"/": LIST, "/etc": READ, "/home/ws": READ}


def test_what_lies_in_something_hidden_is_no_way_around() -> None:
    assert around((StepKind.MASK_DIRECTORY, "/home"), (StepKind.MASK_FILE, "/home/ws/file")) == {
        "/": LIST,
        "/etc": READ,
    }


def test_a_second_layer_that_would_take_too_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GRANTS", 2)
    with pytest.raises(TooManyGrants):
        around(OTHER)


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
