"""The refusal that a reserved name causes."""

from holdfast.agentconfig.conflict import ReservedName
from holdfast.errors import InvalidRequest, face


def test_a_reserved_name_is_a_refusal_with_its_place_and_a_remedy() -> None:
    refusal = ReservedName(7)
    assert refusal.line == 7
    assert refusal.remedy
    assert face(refusal) == face(InvalidRequest("x"))
