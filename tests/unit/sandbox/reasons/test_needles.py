"""A pattern is tried only where one of its words is; so no fitting text may be without them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox.reasons.needles import needles
from tests.support.rows import every_row


@every_row(
    ("pattern", "words"),
    [
        (r"Permission denied", {"permission denied"}),
        (r"no (?:a )?new namespace", {"new namespace"}),
        (r"colou?r of", {"colo"}),
        (r"go+al", {"go"}),
        (r"a{2,3}bcd", {"bcd"}),
        (r"(?:left|right) turn", {" turn"}),
        (r"\b(?:unknown host|no route)", {"unknown host", "no route"}),
        (r"(?:x|)", set()),
        (r"(?:ab)?", set()),
        (r"x(?:longer)*", {"x"}),
        (r"(?:longer)+x", {"longer"}),
        (r"one|two", {"one", "two"}),
        (r"one|\w", set()),
        (r"(?P<path>/[^\s\]]{1,9})\.sock", {".sock"}),
        (r"(?<!word)tail(?=more)", {"tail"}),
        (r"(?<=word)tail(?!more)", {"tail"}),
        (r"[]x]y[^]z]abc", {"abc"}),
        (r'"(?:[^"\\]|\\.)+" end', {'" end'}),
        (r"\[Errno 1\]", {"[errno 1]"}),
        (r"x\xe9 bar \u2019s", {" bar "}),
        (r"^a.b$", {"a"}),
        (r"\S{1,64}", set()),
        (r"", set()),
    ],
)
def test_the_longest_word_that_must_be_there(pattern: str, words: set[str]) -> None:
    assert needles(pattern) == words


ATOMS = st.sampled_from(
    ["a", "B", "cd", r"\.", r"\d", "[ab]", ".", "(?:ab|c)", "(?:a)?", "(?P<x>bc)", "b?", "c{0,2}", "a+"]
)


@given(
    st.lists(ATOMS, max_size=6).filter(lambda atoms: atoms.count("(?P<x>bc)") < 2),
    st.text("abcd.B7", max_size=12),
)
def test_a_text_without_the_words_does_not_fit(atoms: list[str], text: str) -> None:
    pattern = "".join(atoms)
    words = needles(pattern)
    if words and not any(word in text.lower() for word in words):
        assert re.search(pattern, text, re.IGNORECASE) is None
