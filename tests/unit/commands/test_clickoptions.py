import click
import pytest

from holdfast.commands.clickoptions import complete_id, duration
from holdfast.errors import UsageError
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


IDS = ["r_1f2e3d", "r_1f99aa", "my_codex-5b6a", "codex-77.x"]


@every_row(
    ("given", "whole"),
    [
        ("r_1f2", "r_1f2e3d"),
        ("1f9", "r_1f99aa"),
        ("my_codex-5", "my_codex-5b6a"),
        ("5b", "my_codex-5b6a"),
        ("77.", "codex-77.x"),
        ("r_1f2e3d", "r_1f2e3d"),
        ("77x", "77x"),
        ("99aa", "99aa"),
        ("", ""),
    ],
)
def test_an_id_may_be_shortened_to_what_is_unique(given: str, whole: str) -> None:
    assert complete_id(given, IDS if given else [], "runs") == whole


def test_an_id_that_means_several_is_refused_with_their_names() -> None:
    with pytest.raises(UsageError, match="1f is the beginning of several runs: r_1f2e3d, r_1f99aa"):
        complete_id("1f", IDS, "runs")
    assert complete_id("r_1f", ["r_1f", "r_1f2"], "runs") == "r_1f"
