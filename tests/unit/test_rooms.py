"""The drawing and the table of rooms in docs/architecture.md."""

from tools import rooms


def test_the_page_shows_the_rooms_as_they_are() -> None:
    text = rooms.PAGE.read_text("utf-8")
    assert rooms.page(text) == text, "run `python -m tools.rooms`"


def test_an_arrow_that_a_longer_way_says_too_is_left_out() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}
    assert rooms.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_every_room_says_what_lives_there() -> None:
    assert [init for init in rooms.SRC.rglob("*/__init__.py") if not rooms.paragraph(init)] == []
