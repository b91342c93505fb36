import click
import pytest

from holdfast.commands.clickoptions import duration
from tests.support.rows import every_row


@every_row(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("365d", 31536000)]
)
def test_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@every_row("text", ["", "7", "d", "0s", "-1d", "1.5h", "7 d", "7D", "366d", "99999999999s", "\u0667d"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)
