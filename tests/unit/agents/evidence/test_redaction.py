"""No key leaves, nothing a terminal would obey stays, and ordinary words survive."""

from holdfast.agents.evidence.evidence import MAX_SEEN
from holdfast.agents.evidence.redaction import redact, shown
from holdfast.doctor.explain.redaction import HIDDEN
from tests.support.rows import every_row

KEY = "mock-key-12345678"


@every_row(
    "text",
    [
        "sk-ant-REDACTED",
        "key ghp_abcdefghijklmnop123 here",
        "github_pat_11ABCDEFG0abcdefghijkl_mnop",
        "AIzaSyA1234567890abcdefghijklmnopqr",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def",
        '{"api_key": "abcdefgh12345"}',
        "OPENAI_API_KEY=abcdefgh12345",
        "Authorization: Bearer abcdefgh12345",
        "authorization=Basic abcdefgh12345",
        "bearer abcdefgh12345",
        "https://h/v1?key=abcdefgh12345&x=1",
        "https://user:abcdefgh12345@host/",
        "password: abcdefgh12345",
    ],
)
def test_what_looks_like_a_key_is_masked(text: str) -> None:
    clean = redact(text)
    assert HIDDEN in clean
    for part in ("abcdefgh", "abcdefghij", "SyA123", "IOSFOD", "hbGciO", "11ABC"):
        assert part not in clean
    assert redact(clean) == clean


def test_a_known_secret_is_masked_wherever_it_is() -> None:
    assert redact(f"e{KEY}xitCode", [KEY]) == f"e{HIDDEN}xitCode"
    assert redact("abcdef-more abcdef", ["abcdef", "abcdef-more"]) == f"{HIDDEN} {HIDDEN}"


def test_a_secret_that_could_be_a_word_is_left() -> None:
    assert redact("x marks it", ["x", ""]) == "x marks it"


@every_row(
    "text",
    [
        "input_tokens: 100",
        '"max_tokens":4096',
        "token: null",
        "the token of the day",
        "http://host:8080/path",
        "task-list",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redact(text) == text


def test_what_is_shown_is_one_short_line_that_a_terminal_does_not_obey() -> None:
    assert shown("a\x1b[31mb\x1b]0;title\x07c\nd\x1bPe\x9b  f") == "a b c d e f"
    long = shown("w " * 1000)
    assert len(long) <= MAX_SEEN
    assert long.endswith("…")


def test_a_key_across_the_cut_does_not_show_its_half() -> None:
    assert "mock-key" not in shown("x" * (MAX_SEEN - 8) + KEY, [KEY])
