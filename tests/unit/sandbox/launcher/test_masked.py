"""Whom it concerns that something appeared, and what is said where nobody can hear of it."""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest

from holdfast.light import replace
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.dnotify import Dnotify
from holdfast.sandbox.kernel.inotify import Inotify
from holdfast.sandbox.launcher import masked
from holdfast.sandbox.launcher.children import Children
from holdfast.sandbox.launcher.masked import WEAKER, MaskedCommand, MaskedCommands
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind, encode
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.watcher import listener
from tests.support.descriptors import none_left_open

LEADER, OTHER = 1 << 22, (1 << 22) + 1  # no process has such a number


def plan(*denied: Path) -> Plan:
    steps = tuple(Step(StepKind.MASK_FILE, str(path)) for path in denied)
    return Plan(Base.HOST, steps, network_off=True, cwd="/")


class Owner:
    def __init__(self) -> None:
        self.ended: list[int] = []
        self.notifier: Callable[[], Inotify | Dnotify] = lambda: Inotify(blocking=False)
        self.commands = MaskedCommands(lambda _: None, self.ended.append, lambda: self.notifier())

    def begin(self, leader: int, *denied: Path, enterable: bool = False) -> MaskedCommand:
        command = self.commands.begin(plan(*denied))
        if enterable:
            listener.hand_out_namespaces(os.dup(command.theirs))
        command.begin(leader)
        return command


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    for leader in list(made.commands.known):
        made.commands.on_died(leader)


def test_something_concerns_whose_name_it_has(owner: Owner, tmp_path: Path) -> None:
    one = owner.begin(LEADER, tmp_path / ".env")
    other = owner.begin(OTHER, tmp_path / "folder" / "token")
    (tmp_path / "beside").touch()
    owner.commands.look()
    assert not one.appeared
    (tmp_path / "folder").mkdir()
    owner.commands.look()
    assert (one.appeared, other.appeared) == (False, True)
    (tmp_path / ".env").touch()
    owner.commands.look()
    assert one.appeared


def test_whose_command_has_ended_hears_no_more(owner: Owner, tmp_path: Path) -> None:
    one, other = owner.begin(LEADER, tmp_path / ".env"), owner.begin(OTHER, tmp_path / ".env")
    assert owner.commands.on_died(LEADER) == ""
    (tmp_path / ".env").touch()
    owner.commands.look()
    assert (one.appeared, other.appeared) == (False, True)


def test_a_flood_is_looked_through_for_what_changed(owner: Owner, tmp_path: Path) -> None:
    one, other = owner.begin(LEADER, tmp_path / ".env"), owner.begin(OTHER, tmp_path / "token")
    (tmp_path / ".env").touch()
    for number in range(600):
        (tmp_path / f"{number}").touch()
    owner.commands.look()
    assert (one.appeared, other.appeared) == (True, False)


def test_without_names_it_is_looked_what_changed(owner: Owner, tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGIO, lambda number, _: heard.append(number))
    try:
        owner.notifier = Dnotify
        (tmp_path / "there").write_text("old")
        one = owner.begin(LEADER, tmp_path / "folder" / "token")
        other = owner.begin(OTHER, tmp_path / "there")
        (tmp_path / "beside").touch()
        owner.commands.look()
        assert (one.appeared, other.appeared) == (False, False)
        (tmp_path / "folder").mkdir()
        owner.commands.look()
        assert (one.appeared, other.appeared) == (True, False)
        (tmp_path / "there").unlink()
        (tmp_path / "there").write_text("new")
        owner.commands.look()
        assert other.appeared
        assert heard
    finally:
        for leader in (LEADER, OTHER):
            owner.commands.on_died(leader)
        signal.signal(signal.SIGIO, before)


def _refuse(code: int) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return refuse


def test_without_an_instance_it_is_said(owner: Owner, tmp_path: Path) -> None:
    owner.notifier = _refuse(errno.EMFILE)
    owner.begin(LEADER, tmp_path / ".env", enterable=True)
    assert owner.commands.enter(LEADER) == (WEAKER,)


def test_without_watches_it_is_said(owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inotify, "watch", _refuse(errno.ENOSPC))
    owner.begin(LEADER, tmp_path / ".env", enterable=True)
    assert owner.commands.enter(LEADER) == (WEAKER,)


def test_without_its_namespaces_it_is_said(owner: Owner, tmp_path: Path) -> None:
    owner.begin(LEADER, tmp_path / ".env")
    assert owner.commands.enter(LEADER) == (WEAKER,)


def test_with_all_of_it_nothing_is_said(owner: Owner, tmp_path: Path) -> None:
    owner.begin(LEADER, tmp_path / ".env", enterable=True)
    assert owner.commands.enter(LEADER) == ()
    assert owner.commands.enter(OTHER) == ()


def test_a_command_without_a_guard_that_it_needs_is_ended_and_says_why(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.begin(LEADER, tmp_path / ".env", enterable=True)
    owner.commands.enter(LEADER)
    monkeypatch.setattr(os, "fork", _refuse(errno.EAGAIN))
    (tmp_path / ".env").touch()
    owner.commands.look()
    assert owner.ended == [LEADER]
    assert owner.commands.on_died(LEADER).startswith("masks ")


def test_a_guard_that_ends_ends_its_command_and_no_other(owner: Owner, tmp_path: Path) -> None:
    owner.begin(LEADER, tmp_path / ".env").guard = OTHER + 1
    owner.begin(OTHER, tmp_path / ".env")
    owner.commands.on_died(OTHER + 1)
    assert owner.ended == [LEADER]
    assert owner.commands.on_died(OTHER) == ""


def no_descriptor_is_left(*_: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_command_that_cannot_be_watched_for_want_of_descriptors_keeps_none(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked, "_hold", no_descriptor_is_left)
    pinned = plan(tmp_path / ".env")
    pinned = replace(pinned, steps=(*pinned.steps, Step(StepKind.PIN, str(tmp_path))))
    with none_left_open(), pytest.raises(OSError, match="Too many open files"):
        owner.commands.begin(pinned)


def test_a_start_that_comes_to_nothing_for_want_of_descriptors_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its broker were made before."""

    class Nothing(Children):
        events: ClassVar[list[orders.Event]] = []

        def _report(self, event: orders.Event, fds: Sequence[int] = ()) -> None:
            self.events.append(event)

        _await = _forget = lambda *_: None

        def _cover(self, view: Plan) -> MaskedCommand:
            no_descriptor_is_left(view)

    monkeypatch.setattr(kernel, "adopt_orphans", lambda: None)
    order = orders.Order(orders.START, 1, plan=encode(plan(tmp_path / ".env")))
    with none_left_open():
        Nothing()._start(order, [os.open(os.devnull, os.O_RDWR) for _ in range(3)])
    assert [(event.pid, event.errno) for event in Nothing.events] == [(0, errno.EMFILE)]
