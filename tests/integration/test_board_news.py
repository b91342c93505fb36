"""Who listens to a board in PostgreSQL hears of changes: by few hints, and without them a little later."""

import math
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.board.database import postgres
from holdfast.board.store import Store, open_store
from tests.support.boards import made
from tests.support.patience import patient
from tests.support.postgres import fresh

WAIT_S = patient(30)


@pytest.fixture
def address(postgres_server: str) -> str:
    return fresh(postgres_server)


@pytest.fixture
def listener(address: str) -> Iterator[Store]:
    with open_store(address) as store:
        store.create_board("b")
        store.changed(0)
        assert not store.changed(0)
        yield store


def test_changes_that_nobody_told_of_are_there_when_a_hint_has_settled(
    listener: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "UNTOLD_S", math.inf)
    monkeypatch.setattr(postgres, "TELL_S", math.inf)  # the first change tells, and none after it
    with open_store(address) as other, psycopg.connect(address, autocommit=True) as raw:
        raw.execute(f"LISTEN {postgres.CHANNEL}")
        settled: list[float] = []

        def change_meanwhile(seconds: float) -> None:
            settled.append(seconds)
            for _ in range(5):
                made(other)

        made(other)
        with monkeypatch.context() as settling:
            settling.setattr("holdfast.board.database.postgres.time.sleep", change_meanwhile)
            assert listener.changed(WAIT_S)
        assert settled == [postgres.SETTLE_S]
        assert listener.stats("b").total == 6
        assert len(list(raw.notifies(timeout=0.1))) == 1


def test_a_listener_waits_longer_than_a_teller_keeps_to_itself() -> None:
    assert postgres.SETTLE_S > postgres.TELL_S


def test_a_change_whose_maker_died_before_it_told_is_noticed(
    listener: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(address) as other, monkeypatch.context() as dying:
        dying.setattr(postgres.PostgresDatabase, "_tell", lambda _: None)
        made(other)
    assert not listener.changed(0)  # it looks every few seconds only
    monkeypatch.setattr(postgres, "UNTOLD_S", 0.0)
    assert listener.changed(0)
    assert not listener.changed(0)


def test_a_hint_that_cannot_be_given_takes_no_change_back(
    listener: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "UNTOLD_S", math.inf)  # hints alone
    with open_store(address) as other, monkeypatch.context() as failing:
        failing.setattr(postgres, "_TELL", "BEGIN; NOTIFY 1")
        made(other)
        failing.undo()
        made(other)
    assert listener.changed(WAIT_S)
    assert listener.stats("b").total == 2
