"""An old-style profile becomes the text of its own file."""

import pytest

from holdfast.agentconfig.document import scan
from holdfast.agentconfig.oldprofile import extract
from tests.support.rows import every_row


@every_row(
    ("text", "offered"),
    [
        ('[profiles.x]\nmodel = "a" # c\n[tui]\nb = 1\n', 'model = "a"\n'),
        ("[profiles.'x'.tools]\nb = 1\n[profiles.x]\na = 2\n", "a = 2\n\n[tools]\nb = 1\n"),
        ("[profiles.x.tools]\nb.c = 1\n", "[tools]\nb.c = 1\n"),
        ("profiles.x.a = 1\nprofiles.y.a = 2\n", "a = 1\n"),
        ("[profiles]\nx.a.b = 1\n", "a.b = 1\n"),
        ("profiles.x = { a = 1, 'b c' = [1,\n2] }\n", 'a = 1\n"b c" = [1,\n2]\n'),
        ("[[profiles.x.list]]\na = 1\n", "[[list]]\na = 1\n"),
    ],
)
def test_a_profile_is_offered_with_its_keys_at_the_root(text: str, offered: str) -> None:
    assert extract(scan(text), "x") == offered


@pytest.mark.parametrize("text", ["", "[profiles.y]\na = 1\n", "[profiles.x]\n", "profiles.x = 1\n"])
def test_without_such_a_profile_there_is_no_offer(text: str) -> None:
    assert extract(scan(text), "x") is None
