"""What opens doors goes; what explains the failure stays."""

from holdfast.doctor.explain.redaction import HIDDEN, redacted
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
    told = redacted(line)
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
    assert redacted(line) == line


def test_several_secrets_in_one_line_all_go() -> None:
    told = redacted("token=hunter22 and sk-abcdefghij and https://a:hunter33@x")
    assert "hunter" not in told
    assert "abcdefghij" not in told
