import socket
import struct

import pytest

from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind
from holdfast.sandbox.watcher.foresight import (
    Address,
    Suspect,
    Terrain,
    WatchScene,
    access,
    address_of,
    blame,
    decode,
    encode,
    list_refusals,
    scene_of,
    suspect,
    suspect_connect,
)
from holdfast.sandbox.watcher.notifyfilter import Aim
from tests.support.rows import every_row

VIEW = WatchScene(hidden=("/ws/secret",), fixed=("/ws", "/ws/.git", "/ws/secret"))
ALONE = WatchScene(mounts=False, rules=(("/", False), ("/ws", True), ("/ws/.git", False)), closed=("/ws",))
THERE = Terrain("/out/f", read_only=True)
MISSING = Terrain("/out/f", exists=False, read_only=True)
DEVICE = Terrain("/dev/null", special=True, read_only=True)
OPEN, WRITE, CHANGE, CREATE, REMOVE, BIND = (
    Aim.OPEN, Aim.WRITE, Aim.CHANGE, Aim.CREATE, Aim.REMOVE, Aim.BIND,
)  # fmt: skip


@every_row(
    ("aim", "at", "expected"),
    [
        (OPEN, THERE, ("EROFS",)),
        (OPEN, MISSING, ("EROFS",)),
        (OPEN, DEVICE, ()),
        (CHANGE, DEVICE, ("EROFS",)),
        (CREATE, MISSING, ("EROFS",)),
        (REMOVE, MISSING, ("EROFS",)),  # the kernel looks at the mount first
        (BIND, MISSING, ("EROFS",)),
        (CREATE, Terrain("/away/d/x", exists=False, shut=True), ("EROFS",)),  # who knows what is there
        (REMOVE, Terrain("/ws/.git"), ("EBUSY",)),
        (CREATE, Terrain("/ws/.git"), ("EBUSY",)),  # replaced by a rename
        (REMOVE, Terrain("/ws/.git", dotted=True), ()),  # as rename("/ws/.git/.", "x") anywhere
        (WRITE, Terrain("/ws/.git"), ()),
        (REMOVE, Terrain("/ws", read_only=True), ("EROFS", "EBUSY")),
    ],
)
def test_mounts_refuse_what_is_read_only_or_held_in_place(
    aim: Aim, at: Terrain, expected: tuple[str, ...]
) -> None:
    assert list_refusals(aim, at, VIEW) == expected


@every_row("aim", [OPEN, WRITE, CHANGE, CREATE, REMOVE, BIND])
@every_row("exists", [True, False])
def test_on_a_writable_mount_nothing_is_suspected(aim: Aim, exists: bool) -> None:
    assert list_refusals(aim, Terrain("/ws/f", exists=exists), VIEW) == ()


@pytest.mark.parametrize(
    "at", [Terrain("/ws/secret", read_only=True), Terrain("/ws/secret/x", exists=False, shut=True)]
)
def test_what_is_hidden_may_be_refused_in_three_ways(at: Terrain) -> None:
    assert set(list_refusals(OPEN, at, VIEW)) == {"EACCES", "EROFS", "EBUSY"}


PATHS_BELOW = ("/h/x", "/h/w/x", "/h/w/state/d/x", "/h/w/state/key")


def test_what_is_granted_below_something_hidden_is_not_hidden() -> None:
    """A worker's state lies in a home that is hidden, and something of it may be hidden once more."""
    home, state = (StepKind.MASK_DIRECTORY, "/h"), (StepKind.WRITABLE, "/h/w/state")
    steps = tuple(Step(kind, path) for kind, path in (home, state, (StepKind.MASK_FILE, "/h/w/state/key")))
    for alone in (False, True):
        plan = Plan(Base.HOST, steps, network_off=False, cwd="/")
        scene = decode(encode(scene_of(plan, alone=alone, degraded=False)))
        found = {
            path: bool(list_refusals(CREATE, Terrain(path, exists=False), scene)) for path in PATHS_BELOW
        }
        assert found == {"/h/x": True, "/h/w/x": True, "/h/w/state/d/x": False, "/h/w/state/key": True}


def test_a_name_that_only_begins_like_a_hidden_one_is_not_hidden() -> None:
    assert list_refusals(OPEN, Terrain("/ws/secrets"), VIEW) == ()


@every_row(
    ("aim", "at", "expected"),
    [
        (OPEN, Terrain("/ws/sub/f"), False),
        (OPEN, Terrain("/ws/f"), False),
        (OPEN, Terrain("/ws/new", exists=False), True),  # the directory is closed
        (OPEN, Terrain("/ws/sub/new", exists=False), False),
        (OPEN, Terrain("/ws/.git/config"), True),
        (OPEN, Terrain("/etc/f"), True),
        (OPEN, Terrain("/dev/null", special=True), False),
        (CREATE, Terrain("/etc/d", exists=False), True),
        (REMOVE, Terrain("/ws/sub/f"), False),
        (REMOVE, Terrain("/ws/f"), True),
        (CHANGE, Terrain("/etc/f"), False),  # not Landlock's affair
    ],
)
def test_landlock_alone_decides_by_rules(aim: Aim, at: Terrain, expected: bool) -> None:
    assert list_refusals(aim, at, ALONE) == (("EACCES",) if expected else ())


def of(aim: Aim, at: Terrain, *, moves: bool = False) -> Suspect:
    found = suspect(aim, at, f"as written: {at.path}", VIEW, moves=moves)
    assert found is not None
    return found


def test_only_an_answer_that_refuses_is_a_denial() -> None:
    made = of(CREATE, MISSING)
    assert blame("EROFS", (made,)) == made
    assert (made.access, made.path, made.asked) == ("create", "/out/f", "as written: /out/f")
    for other in ("", "EEXIST", "ENOENT", "ENOTDIR", "EACCES", "EXDEV"):
        assert blame(other, (made,)) is None
    assert blame("EACCES", (of(OPEN, Terrain("/ws/secret/x", exists=False, shut=True)),)) is not None


def test_of_a_move_the_path_is_told_that_the_answer_is_about() -> None:
    target, source = of(CREATE, MISSING, moves=True), of(REMOVE, Terrain("/ws/.git"), moves=True)
    assert blame("EXDEV", (target, source)) == target
    assert blame("EBUSY", (target, source)) == source
    assert blame("EXDEV", (source,)) is None  # only another mount: no rule refuses it
    assert suspect(REMOVE, Terrain("/ws/a"), "a", VIEW, moves=True) is None


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
    found = suspect_connect(address, OFF)
    assert (found is not None) == refused
    assert found is None or blame("ENETUNREACH", (found,)) == found
    assert suspect_connect(address, ON) is None


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
