"""A key that is said back is covered wherever pieces end, and nothing else is changed."""

import base64
import itertools
import json
from collections.abc import Sequence
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.keys.masking import Cover, Lookout, measure, spell
from holdfast.egress.keys.placeholders import Key
from tests.support.rows import every_row

KEY = Key("API_KEY", 'sk-Re4l/Key+"of"0urs', "sk-PlaceholderPlaces", frozenset({("api.test", 443)}))
REAL = KEY.value.encode()
# Few letters, so that words begin often and overlap.
WORDS = st.dictionaries(
    st.binary(min_size=2, max_size=6).map(lambda b: bytes(x % 3 + 97 for x in b)), st.none()
)


def cover_pieces(cover: Cover, pieces: Sequence[bytes]) -> bytes:
    return b"".join([*(cover.feed(piece) for piece in pieces), cover.finish()])


@given(WORDS, st.lists(st.binary(max_size=8).map(lambda b: bytes(x % 3 + 97 for x in b)), max_size=12))
def test_pieces_are_covered_as_the_whole_is(words: dict[bytes, None], pieces: list[bytes]) -> None:
    known = {word: b"*" * len(word) for word in words}
    whole = Cover(known).cover(b"".join(pieces))
    assert cover_pieces(Cover(known), pieces) == whole
    assert not [word for word in words if word in whole]
    assert len(whole) == sum(map(len, pieces))


@given(st.binary(max_size=40), st.binary(max_size=40), st.lists(st.integers(0, 120), max_size=6))
def test_a_key_across_borders_is_never_said(before: bytes, after: bytes, cuts: list[int]) -> None:
    text = before + REAL + after + REAL
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(at)]
    said = cover_pieces(Cover(spell(KEY)), pieces)
    assert REAL not in said
    assert said.count(KEY.placeholder.encode()) >= 2
    assert len(said) == len(text)


@every_row("start", range(3), ids=str)
def test_other_spellings_are_covered_too(start: int) -> None:
    plain = b"u" * start + REAL + b"!"
    for said in (
        quote(KEY.value, safe="").encode(),
        json.dumps(KEY.value).encode(),
        json.dumps(KEY.value).replace("/", "\\/").encode(),
        base64.b64encode(plain),
        base64.urlsafe_b64encode(plain),
    ):
        covered = Cover(spell(KEY)).cover(b"<" + said + b">")
        assert len(covered) == len(said) + 2
        assert b"****" in covered
        assert said[8:16] not in covered


def test_what_cannot_become_a_key_is_passed_on_at_once() -> None:
    """An answer that comes as events is not held back."""
    cover = Cover(spell(KEY))
    assert cover.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert cover.feed(b"data: sk-") == b"data: "
    assert cover.feed(b"other") == b"sk-other"


@every_row("cut", range(10, len(REAL)), ids=str)
def test_a_key_that_is_cut_off_is_covered_as_far_as_it_goes(cut: int) -> None:
    """Whoever asks chooses what is before it where a server shows so many characters and no more."""
    key = Key("API_KEY", "sk-Re4lKeyOf0ursAndMore", "sk-PlaceholderPlaceWord", KEY.targets)
    for said in (key.value, base64.b64encode(key.value.encode()).decode(), quote(key.value, safe="")):
        text = f"bad header: '{said[: cut + 4]}"
        cover = Cover(spell(key), measure(key))
        covered = cover_pieces(cover, [text[:17].encode(), text[17:].encode()]).decode()
        assert len(covered) == len(text)
        assert said[: cut + 4] not in covered
        assert said[4 : cut + 4] not in covered


@given(st.lists(st.tuples(st.integers(0, 23), st.booleans()), max_size=5), st.lists(st.integers(0, 150)))
def test_whole_keys_are_covered_between_pieces_of_it(parts: list[tuple[int, bool]], cuts: list[int]) -> None:
    """Of a key that repeats itself too, wherever pieces end."""
    key = Key("API_KEY", "sk-ab3sk-ab3sk-ab9sk-ab", "sk-PlaceholderPlaceWord", KEY.targets)
    real = key.value.encode()
    text = b"".join(real[:cut] + (b"." if dot else b"") for cut, dot in parts) + real
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    said = cover_pieces(Cover(spell(key), measure(key)), [text[a:b] for a, b in itertools.pairwise(at)])
    assert len(said) == len(text)
    assert real[:9] not in said
    assert real[4:] not in said


def test_the_public_beginning_of_a_key_is_not_covered() -> None:
    text = b"keys begin with sk-Re and c2stUmU= or so"
    assert cover_pieces(Cover(spell(KEY), measure(KEY)), [text]) == text


def test_nothing_is_covered_without_words() -> None:
    assert cover_pieces(Cover({}), [b"a", b"b"]) == b"ab"
    assert not Lookout(()).sees(b"a")


@given(st.binary(max_size=20), st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_a_lookout_sees_a_word_across_borders(before: bytes, cuts: list[int], there: bool) -> None:
    word = b"placeholder-\xff\xfe"
    text = before + (word if there else word[:-1] + b"-") + before
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    lookout = Lookout([word])
    assert any(lookout.sees(text[a:b]) for a, b in itertools.pairwise(at)) is (word in text)
