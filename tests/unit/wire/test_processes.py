import msgspec
import pytest

from holdfast.wire.processes import DeniedCall, UnconfirmedCall, WatchedCall, sort_out

CALL = WatchedCall("p", 1, "create", "d", "/x/d", "mkdir", "EROFS", False, 7, "sh", 2, 0, "outside", None)
FORESEEN = msgspec.structs.replace(CALL, predicted=True)


def test_what_came_over_the_wire_is_a_denial_only_if_it_was_seen() -> None:
    for call, kind in ((CALL, DeniedCall), (FORESEEN, UnconfirmedCall)):
        sorted_out = sort_out(msgspec.json.decode(msgspec.json.encode(call), type=WatchedCall))
        assert type(sorted_out) is kind
        assert msgspec.json.encode(sorted_out) == msgspec.json.encode(call)


def test_nothing_foreseen_can_be_made_a_denial() -> None:
    with pytest.raises(ValueError, match="no denial"):
        DeniedCall(**msgspec.structs.asdict(FORESEEN))
    with pytest.raises(ValueError, match="confirmed"):
        UnconfirmedCall(**msgspec.structs.asdict(CALL))
