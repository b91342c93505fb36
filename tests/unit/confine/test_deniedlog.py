import pytest
from msgspec import structs

from holdfast.confine import deniedlog
from holdfast.confine.deniedlog import DenialNotice, DeniedLog, Rules
from holdfast.sandbox.policy.policy import Network, Where, bind, workspace_write
from holdfast.wire.processes import DeniedCall, UnconfirmedCall
from tests.support.rows import every_row

BOUND = bind(workspace_write().with_network(Network.OFF), Where("/home/me/ws", ("/home/me/ws",)))
THERE = {
    "/",
    "/home",
    "/home/me",
    "/home/me/f",
    "/home/me/ws",
    "/home/me/ws/.git",
    "/etc",
    "/home/me/odd name",
}
RULES = Rules(BOUND.explain, THERE.__contains__, closed=("/home/me/ws",))
SEEN = DenialNotice("openat", "write", "EROFS", "/home/me/f", "../f", 7, "sh", 1)


def why(**changes: object) -> tuple[str | None, str | None]:
    return RULES.why(structs.replace(SEEN, **changes))


@every_row(
    ("path", "access", "grant"),
    [
        ("/home/me/f", "write", "--allow-write /home/me/f"),
        ("/home/me/f", "remove", "--allow-write /home/me"),
        ("/home/me/new", "create", "--allow-write /home/me"),
        ("/home/me/a/b/c", "create", "--allow-write /home/me/a"),
        ("/home/me/odd name", "write", "--allow-write '/home/me/odd name'"),
        ("/etc/x", "create", "--allow-write /etc"),
    ],
)
def test_the_grant_is_the_smallest_that_is_there_to_be_granted(path: str, access: str, grant: str) -> None:
    rule, found = why(path=path, access=access)
    assert found == grant
    assert rule is not None
    assert rule == "outside the writable roots /tmp, /home/me/ws"


def test_a_state_directory_is_granted_by_itself() -> None:
    assert why(path="/home/me/.npm", access="create", syscall="mkdirat")[1] == "--allow-write /home/me/.npm"
    assert why(path="/home/me/.toolrc", access="create", syscall="openat")[1] == "--allow-write /home/me"


def test_protected_metadata_is_named() -> None:
    rule, grant = why(path="/home/me/ws/.git/x", access="create")
    assert rule == "/home/me/ws/.git is protected metadata of the workspace root /home/me/ws"
    assert grant == "--allow-write /home/me/ws/.git"


def test_the_network_is_one_switch() -> None:
    assert why(path="192.0.2.1:443", access="connect") == ("the network is off", "--network on")


def test_no_flag_moves_a_mount_point_or_gives_a_second_listener() -> None:
    assert why(path="/home/me/ws/.git", access="remove", errno="EBUSY")[1] is None
    assert why(path="", access="listen", errno="EBUSY")[1] is None


def test_what_the_policy_allows_is_not_blamed_on_it() -> None:
    rule, grant = why(path="/home/me/ws/sub/f", access="write")
    assert rule == "the policy allows it; the host itself does not"
    assert grant is None
    rule, grant = why(path="/home/me/ws/new", access="create", errno="EACCES")
    assert rule is not None
    assert "--degraded" in rule
    assert grant is None


def test_what_is_alike_is_counted_and_gets_a_new_number() -> None:
    log = DeniedLog("p", RULES)
    first = log.add(SEEN, at_ms=1)
    other = log.add(structs.replace(SEEN, path="/home/me/g"), at_ms=2)
    again = log.add(structs.replace(SEEN, count=3, pid=9, comm=""), at_ms=5)
    assert first is not None
    assert other is not None
    assert again is not None
    assert [first.number, other.number, again.number] == [1, 2, 3]
    assert (again.count, again.pid, again.comm, again.at_ms) == (4, 9, "sh", 5)
    assert [entry.number for entry in log.read(0)] == [2, 3]
    assert log.read(2) == [again]
    assert log.read(3) == []


def test_there_is_a_bound_on_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deniedlog, "MAX_DENIALS", 2)
    log = DeniedLog("p", RULES)
    kept = [log.add(structs.replace(SEEN, path=f"/home/me/{n}", count=2), at_ms=1) for n in range(4)]
    assert [entry is not None for entry in kept] == [True, True, False, False]
    assert log.dropped == 4
    assert log.add(structs.replace(SEEN, path="/home/me/0"), at_ms=1) is not None


def test_there_is_a_bound_on_bytes() -> None:
    log = DeniedLog("p", RULES)
    for number in range(100):
        log.add(structs.replace(SEEN, path=f"/home/me/{number}/" + "x" * 4000), at_ms=1)
    held = sum(len(entry.path) for entry in log.read(0))
    assert 0 < held <= deniedlog.MAX_DENIAL_BYTES
    assert log.dropped == 100 - len(log.read(0)) > 0


def test_what_is_only_foreseen_is_kept_apart_and_is_no_denial() -> None:
    log = DeniedLog("p", RULES)
    seen = log.add(SEEN, at_ms=1)
    foreseen = log.add(structs.replace(SEEN, predicted=True), at_ms=2)
    assert isinstance(seen, DeniedCall)
    assert isinstance(foreseen, UnconfirmedCall)
    assert (log.denied, log.unconfirmed) == ([seen], 1)
    assert log.read(0) == [seen, foreseen]
    assert (foreseen.count, foreseen.rule) == (1, seen.rule)
