import socket
import struct

import pytest

from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind
from holdfast.sandbox.watcher.foresight import (
    Address,
    Terrain,
    WatchScene,
    access,
    address_of,
    decode,
    encode,
    predict,
    predict_connect,
    predict_move,
    scene_of,
)
from holdfast.sandbox.watcher.notifyfilter import O_CREAT, O_EXCL, Aim
from tests.support.rows import every_row

VIEW = WatchScene(hidden=("/ws/secret",), fixed=("/ws", "/ws/.git", "/ws/secret"))
ALONE = WatchScene(mounts=False, rules=(("/", False), ("/ws", True), ("/ws/.git", False)), closed=("/ws",))
THERE = Terrain("/out/f", read_only=True)
MISSING = Terrain("/out/f", exists=False, read_only=True)
FOLDER = Terrain("/out/d", directory=True, read_only=True)
DEVICE = Terrain("/dev/null", special=True, read_only=True)
NOWHERE = Terrain("/out/no/f", exists=False, reachable=False)
OPEN, WRITE, CHANGE, CREATE, REMOVE, BIND = (
    Aim.OPEN, Aim.WRITE, Aim.CHANGE, Aim.CREATE, Aim.REMOVE, Aim.BIND,
)  # fmt: skip


@every_row(
    ("aim", "flags", "at", "expected"),
    [
        (OPEN, 0, THERE, "EROFS"),
        (OPEN, O_CREAT, THERE, "EROFS"),
        (OPEN, O_CREAT, MISSING, "EROFS"),
        (OPEN, 0, MISSING, None),  # ENOENT
        (OPEN, O_CREAT | O_EXCL, THERE, None),  # EEXIST
        (OPEN, O_CREAT, NOWHERE, None),  # ENOENT
        (OPEN, O_CREAT, DEVICE, None),
        (OPEN, 0, FOLDER, None),  # EISDIR
        (WRITE, 0, THERE, "EROFS"),
        (WRITE, 0, MISSING, None),
        (CHANGE, 0, FOLDER, "EROFS"),
        (CHANGE, 0, DEVICE, "EROFS"),
        (CREATE, 0, MISSING, "EROFS"),
        (CREATE, 0, FOLDER, None),  # EEXIST
        (CREATE, 0, NOWHERE, None),
        (REMOVE, 0, THERE, "EROFS"),
        (REMOVE, 0, MISSING, None),
        (BIND, 0, MISSING, "EROFS"),
        (BIND, 0, THERE, None),  # EADDRINUSE
    ],
)
def test_on_a_read_only_mount_what_gets_that_far_is_refused(
    aim: Aim, flags: int, at: Terrain, expected: str | None
) -> None:
    assert predict(aim, flags, at, VIEW) == expected


@every_row("aim", [OPEN, WRITE, CHANGE, CREATE, REMOVE, BIND])
@every_row("exists", [True, False])
def test_on_a_writable_mount_nothing_is_refused(aim: Aim, exists: bool) -> None:
    assert predict(aim, O_CREAT, Terrain("/ws/f", exists=exists), VIEW) is None


@pytest.mark.parametrize(
    "at", [Terrain("/ws/secret", read_only=True), Terrain("/ws/secret/x", exists=False, reachable=False)]
)
def test_what_is_hidden_cannot_even_be_entered(at: Terrain) -> None:
    assert predict(OPEN, O_CREAT, at, VIEW) == "EACCES"


PATHS_BELOW = ("/h/x", "/h/w/x", "/h/w/state/d/x", "/h/w/state/key")


def test_what_is_granted_below_something_hidden_is_not_hidden() -> None:
    """A worker's state lies in a home that is hidden, and something of it may be hidden once more."""
    home, state = (StepKind.MASK_DIRECTORY, "/h"), (StepKind.WRITABLE, "/h/w/state")
    steps = tuple(Step(kind, path) for kind, path in (home, state, (StepKind.MASK_FILE, "/h/w/state/key")))
    for alone in (False, True):
        plan = Plan(Base.HOST, steps, network_off=False, cwd="/")
        scene = decode(encode(scene_of(plan, alone=alone, degraded=False)))
        found = {path: predict(Aim.CREATE, 0, Terrain(path, exists=False), scene) for path in PATHS_BELOW}
        assert found == {
            "/h/x": "EACCES",
            "/h/w/x": "EACCES",
            "/h/w/state/d/x": None,
            "/h/w/state/key": "EACCES",
        }


def test_a_name_that_only_begins_like_a_hidden_one_is_not_hidden() -> None:
    assert predict(OPEN, O_CREAT, Terrain("/ws/secrets"), VIEW) is None


def test_a_mount_point_is_not_removed_and_its_mount_is_not_asked() -> None:
    assert predict(REMOVE, 0, Terrain("/ws/.git", directory=True), VIEW) == "EBUSY"
    assert predict(REMOVE, 0, Terrain("/ws", directory=True, read_only=True), VIEW) == "EROFS"


INSIDE, NEW_INSIDE = Terrain("/ws/a"), Terrain("/ws/b", exists=False)


@every_row(
    ("source", "target", "expected"),
    [
        (INSIDE, NEW_INSIDE, None),
        (INSIDE, Terrain("/ws/b"), None),
        (THERE, MISSING._replace(path="/out/g"), ("/out/g", CREATE, "EROFS")),
        (THERE, THERE._replace(path="/out/g"), ("/out/g", CREATE, "EROFS")),  # replaced
        (INSIDE, MISSING, ("/out/f", CREATE, "EXDEV")),
        (THERE, NEW_INSIDE, ("/out/f", REMOVE, "EXDEV")),
        (Terrain("/ws/.git"), NEW_INSIDE, ("/ws/.git", REMOVE, "EBUSY")),
        (MISSING, MISSING, None),
        (THERE, NOWHERE, None),
    ],
)
def test_a_move_fails_at_one_of_its_paths(
    source: Terrain, target: Terrain, expected: tuple[str, Aim, str] | None
) -> None:
    found = predict_move(source, target, VIEW)
    assert (None if found is None else (found[0].path, *found[1:])) == expected


@every_row(
    ("aim", "at", "expected"),
    [
        (OPEN, Terrain("/ws/sub/f"), None),
        (OPEN, Terrain("/ws/f"), None),
        (OPEN, Terrain("/ws/new", exists=False), "EACCES"),  # the directory is closed
        (OPEN, Terrain("/ws/sub/new", exists=False), None),
        (OPEN, Terrain("/ws/.git/config"), "EACCES"),
        (OPEN, Terrain("/etc/f"), "EACCES"),
        (OPEN, Terrain("/dev/null", special=True), None),
        (CREATE, Terrain("/etc/d", exists=False), "EACCES"),
        (REMOVE, Terrain("/ws/sub/f"), None),
        (REMOVE, Terrain("/ws/f"), "EACCES"),
        (CHANGE, Terrain("/etc/f"), None),  # not Landlock's affair
    ],
)
def test_landlock_alone_decides_by_rules(aim: Aim, at: Terrain, expected: str | None) -> None:
    assert predict(aim, O_CREAT, at, ALONE) == expected


def four(host: str, port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


def six(host: str, port: int) -> bytes:
    raw = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + raw + bytes(4)


OFF, ON = WatchScene(network_off=True), WatchScene()


@every_row(
    ("data", "host", "refused"),
    [
        (four("192.0.2.1", 443), "192.0.2.1:443", True),
        (four("127.0.0.1", 80), "127.0.0.1:80", False),
        (four("127.8.0.1", 80), "127.8.0.1:80", False),
        (four("0.0.0.0", 80), "0.0.0.0:80", False),  # noqa: S104
        (six("2001:db8::1", 53), "[2001:db8::1]:53", True),
        (six("::1", 53), "[::1]:53", False),
        (six("::", 53), "[::]:53", False),
        (six("::ffff:192.0.2.1", 53), "192.0.2.1:53", True),
        (six("::ffff:127.0.0.1", 53), "127.0.0.1:53", False),
    ],
)
def test_without_a_network_only_this_machine_is_reached(data: bytes, host: str, refused: bool) -> None:
    address = address_of(data)
    assert address.host == host
    assert predict_connect(address, OFF) == ("ENETUNREACH" if refused else None)
    assert predict_connect(address, ON) is None


@every_row(
    ("data", "expected"),
    [
        (b"", Address()),
        (b"\x01", Address()),
        (struct.pack("=H", socket.AF_UNIX) + b"/run/s\0junk", Address(path=b"/run/s")),
        (struct.pack("=H", socket.AF_UNIX) + b"\0abstract", Address()),
        (struct.pack("=H", socket.AF_INET) + b"\0", Address()),
        (struct.pack("=H", 16) + bytes(20), Address()),
    ],
)
def test_other_addresses_are_paths_or_nothing(data: bytes, expected: Address) -> None:
    assert address_of(data) == expected


PLAN = Plan(
    Base.HOST,
    (
        Step(StepKind.WRITABLE, "/ws"),
        Step(StepKind.PIN, "/ws/a"),
        Step(StepKind.READ_ONLY, "/ws/.git"),
        Step(StepKind.MASK_FILE, "/ws/key"),
    ),
    network_off=True,
    cwd="/ws",
)


def test_a_scene_of_mounts_knows_what_is_hidden_and_held_in_place() -> None:
    scene = scene_of(PLAN, alone=False, degraded=False)
    assert scene == WatchScene(
        True, True, ("/ws/key",), ("/ws", "/ws/a", "/ws/.git", "/ws/key"), writable=("/ws",)
    )


def test_a_scene_of_landlock_knows_the_rules_and_what_they_cost() -> None:
    scene = scene_of(PLAN, alone=True, degraded=False)
    assert scene.rules == (("/", False), ("/ws", True), ("/ws/.git", False))
    assert "/ws" in scene.closed
    assert scene_of(PLAN, alone=True, degraded=True).rules == (("/", False), ("/ws", True))


@pytest.mark.parametrize("alone", [False, True])
def test_a_scene_travels_whole(alone: bool) -> None:
    scene = scene_of(PLAN, alone=alone, degraded=False)
    assert decode(encode(scene)) == scene


def test_what_is_opened_and_not_there_is_created() -> None:
    assert access(OPEN, exists=True) == "write"
    assert access(OPEN, exists=False) == "create"
    assert access(REMOVE, exists=True) == "remove"
