"""Environments written into the file and taken out of it."""

import pytest

from holdfast.client.environmentedit import add, remove
from holdfast.client.environmentfile import from_toml
from holdfast.errors import NotFound

OTHERS = """# mine
include_local = false   # kept

[[environments]]
id = "lab"
url = "wss://lab.example"  # kept too
"""


def names(text: str) -> list[str]:
    return [entry.id for entry in from_toml(text, source="x", folder="/x").entries]


def test_what_is_added_is_read_and_what_is_removed_is_gone() -> None:
    one = add("", "box", "ssh://ann@box:2222/srv/app", default=True)
    listed = from_toml(one, source="x", folder="/x")
    assert (listed.default, listed.entries[0].url) == ("box", "ssh://ann@box:2222/srv/app")
    assert listed.entries[0].initialize_timeout_s == 30.0
    two = add(one, "lab", "wss://lab.example", default=False)
    assert names(two) == ["box", "lab"]
    assert names(remove(two, "box")) == ["lab"]
    assert remove(remove(two, "box"), "lab").strip() == ""


def test_everything_else_keeps_its_bytes() -> None:
    more = add(OTHERS, "box", "ssh://box", default=False)
    assert more.startswith(OTHERS)
    assert names(more) == ["lab", "box"]
    assert remove(more, "box").strip() == OTHERS.strip()


def test_what_is_not_there_cannot_be_removed() -> None:
    for text in ("", OTHERS):
        with pytest.raises(NotFound):
            remove(text, "box")
