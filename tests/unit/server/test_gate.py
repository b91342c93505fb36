"""The gate of a connection: which method may be called at which stage of the handshake."""

import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.connection import HandshakeStage, gate
from holdfast.wire.methods import METHODS, MethodRow
from tests.support.rows import every_row

OTHERS = [method for name, method in METHODS.items() if name != "initialize"]


@every_row("method", OTHERS, ids=lambda method: method.name)
def test_nothing_but_initialize_comes_first(method: MethodRow) -> None:
    with pytest.raises(InvalidRequest) as caught:
        gate(HandshakeStage.NEW, method)
    assert str(caught.value) == f"client must call initialize before using {method.family} methods"


@every_row("method", OTHERS, ids=lambda method: method.name)
def test_nothing_comes_before_the_client_says_initialized(method: MethodRow) -> None:
    with pytest.raises(InvalidRequest) as caught:
        gate(HandshakeStage.INITIALIZED, method)
    assert str(caught.value) == f"client must send initialized before using {method.family} methods"


@every_row("method", OTHERS, ids=lambda method: method.name)
def test_everything_is_open_once_the_handshake_is_complete(method: MethodRow) -> None:
    gate(HandshakeStage.READY, method)


def test_initialize_opens_a_new_connection() -> None:
    gate(HandshakeStage.NEW, METHODS["initialize"])


@pytest.mark.parametrize("stage", [HandshakeStage.INITIALIZED, HandshakeStage.READY])
def test_initialize_is_not_repeated(stage: HandshakeStage) -> None:
    with pytest.raises(InvalidRequest, match=r"^initialize may only be sent once per connection$"):
        gate(stage, METHODS["initialize"])


def test_the_families_are_those_of_the_protocol() -> None:
    assert {method.family for method in OTHERS} == {
        "exec",
        "environment info",
        "environment status",
        "environment config",
        "capability discovery",
        "filesystem",
        "http",
    }
