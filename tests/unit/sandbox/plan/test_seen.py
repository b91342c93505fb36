"""What was seen at a path."""

from holdfast.sandbox.plan.seen import Found, Sight


def test_only_what_can_be_looked_at_exists() -> None:
    assert [found for found in Found if Sight("/a", found).exists] == [Found.FILE, Found.DIRECTORY]
