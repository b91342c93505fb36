"""What opens doors goes; what explains the failure stays."""

from collections.abc import Sequence

from holdfast.doctor.explain.redaction import HIDDEN, redact, redact_line
from tests.support.rows import every_row


@every_row(
    ("line", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abcDEF123456_-x", "abcDEF123456"),
        ("Authorization: Bearer abc.def-ghi123", "abc.def-ghi123"),
        ("proxy: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("remote: ghp_0123456789abcdefABCDEF rejected", "0123456789abcdef"),
        ("glpat-0123456789abcdef", "0123456789abcdef"),
        ("xoxb-0123456789-abcdef", "0123456789"),
        ("AKIAIOSFODNN7EXAMPLE is not authorised", "IOSFODNN7EXAMPLE"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def", "eyJzdWIiOiIxIn0"),
        ("fatal: unable to access 'https://me:hunter22@example.com/x.git/'", "hunter22"),
        ("GET /v1?token=hunter22&x=1", "hunter22"),
        ("OPENAI_API_KEY=hunter22", "hunter22"),
        ('"password": "hunter22"', "hunter22"),
        ("--password=hunter22 --verbose", "hunter22"),
        ("client_secret: hunter22", "hunter22"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----b3BlbnNzaC1rZXk", "b3BlbnNzaC1rZXk"),
    ],
)
def test_a_secret_is_hidden_and_its_name_is_not(line: str, secret: str) -> None:
    told = redact(line)
    assert secret not in told
    assert HIDDEN in told
    assert told[:4] == line[:4]


@every_row(
    "line",
    [
        "bwrap: setting up uid map: Permission denied",
        "ERROR: Missing environment variable: `OPENAI_API_KEY`.",
        "unexpected status 401 Unauthorized: Missing bearer authentication in header",
        "Error: duplicate key at config.toml:2:1: duplicate key",
        "fatal: Unable to create '/srv/ws/.git/index.lock': Read-only file system",
        "/usr/share/task-runner/sketch",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redact(line) == line


def test_several_secrets_in_one_line_all_go() -> None:
    told = redact("token=hunter22 and sk-abcdefghij and https://a:hunter33@x")
    assert "hunter" not in told
    assert "abcdefghij" not in told


KEY = "mock-key-12345678"
LIMIT = 300


def show(text: str, secrets: Sequence[str] = ()) -> str:
    return redact_line(text, secrets, limit=LIMIT)


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
    assert show("a\x1b[31mb\x1b]0;title\x07c\nd\x1bPe\x9b  f") == "a b c d e f"
    long = show("w " * 1000)
    assert len(long) <= LIMIT
    assert long.endswith("…")


def test_a_key_across_the_cut_does_not_show_its_half() -> None:
    assert "mock-key" not in show("x" * (LIMIT - 8) + KEY, [KEY])
