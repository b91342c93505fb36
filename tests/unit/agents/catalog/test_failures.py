"""Which failure a status, a message and a line mean, and that talk about errors means none."""

from holdfast.agents.catalog.failures import MAX_MESSAGE, of_line, of_message, of_status
from holdfast.agents.evidence.evidence import Failure, Trouble
from tests.support.rows import every_row


@every_row(
    ("http", "message", "failure"),
    [
        (400, "", Failure.CONFIGURATION),
        (400, "context_length_exceeded", Failure.CONTEXT),
        (401, "", Failure.AUTH),
        (402, "", Failure.QUOTA),
        (403, "Access to this is denied.", Failure.AUTH),
        (403, "credit balance is too low", Failure.QUOTA),
        (404, "The model 'x' does not exist.", Failure.MODEL),
        (404, "no such path", Failure.CONFIGURATION),
        (408, "", Failure.PROVIDER),
        (413, "", Failure.CONTEXT),
        (429, "Rate limit reached", Failure.RATE_LIMIT),
        (429, "insufficient_quota", Failure.QUOTA),
        (500, "", Failure.PROVIDER),
        (529, "overloaded", Failure.PROVIDER),
        (599, "", Failure.PROVIDER),
        (200, "", None),
        (302, "", None),
    ],
)
def test_a_status_has_a_meaning_unless_the_message_knows_better(
    http: int, message: str, failure: Failure | None
) -> None:
    assert of_status(http, message) is failure
    assert of_message(message, http) == (None if failure is None else Trouble(failure, http))


@every_row(
    ("message", "failure", "http"),
    [
        ("unexpected status 401 Unauthorized: Incorrect API key provided., url: u", Failure.AUTH, 401),
        ("unexpected status 402 Payment Required: x", Failure.QUOTA, 402),
        ("unexpected status 503 Service Unavailable: x", Failure.PROVIDER, 503),
        ("exceeded retry limit, last status: 429 Too Many Requests", Failure.RATE_LIMIT, 429),
        ("We\u2019re currently experiencing high demand, which may cause", Failure.PROVIDER, None),
        ("Quota exceeded. Check your plan and billing details.", Failure.QUOTA, None),
        ("Codex ran out of room in the model's context window.", Failure.CONTEXT, None),
        ("Incomplete response returned, reason: max_output_tokens", Failure.CONTEXT, None),
        ("stream disconnected before completion: stream closed", Failure.PROVIDER, None),
        ("Connection failed: error sending request", Failure.NETWORK, None),
        ("The model 'm' does not exist.", Failure.MODEL, None),
        ("There's an issue with the selected model (m).", Failure.MODEL, None),
        ("Model 'm' not found on provider", Failure.MODEL, None),
        ("Failed to authenticate. API Error: 403 Access", Failure.AUTH, 403),
        ("Request rejected (429) · slow down", Failure.RATE_LIMIT, 429),
        ("Prompt is too long · x", Failure.CONTEXT, None),
        ("API returned an empty or malformed response (HTTP 200)", Failure.PROVIDER, None),
        ('[API Error: {"error":{"code":401,"message":"x","status":"UNAUTHENTICATED"}}]', Failure.AUTH, 401),
        ("Model stream ended without a finish reason.", Failure.PROVIDER, None),
        ("Connection error. (cause: getaddrinfo EAI_AGAIN host)", Failure.NETWORK, None),
        ("Invalid API key (from env var X)", Failure.AUTH, None),
        ("Cannot connect to API: x", Failure.NETWORK, None),
        ("EROFS: read-only file system, mkdir '/home/.local'", Failure.SANDBOX, None),
        ("ENOENT: no such file or directory, mkdir '/home/.qwen'", Failure.SANDBOX, None),
        ("Unknown: FileSystem.open (/home/x.log)", Failure.SANDBOX, None),
        ("unable to open database file", Failure.SANDBOX, None),
        ("blocked by the provider's content filter", Failure.REFUSAL, None),
        ('Failed query: insert into "project" ("id") values (?)', Failure.STATE, None),
        ("SQLiteError: database is locked", Failure.STATE, None),
        ("Loop detection halted the run (global_tool_call_duplicate: the model", Failure.LIMIT, None),
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out", Failure.MEMORY, None),
        ("Cannot connect to API: self signed certificate", Failure.NETWORK, None),
        ("Connection error. (cause: unable to verify the first certificate)", Failure.NETWORK, None),
        ("error sending request: invalid peer certificate: UnknownIssuer", Failure.NETWORK, None),
        ("The user rejected permission to use this tool", Failure.PERMISSION, None),
        ("litellm.RateLimitError: RateLimitError: x", Failure.RATE_LIMIT, None),
        ("litellm.BadRequestError: x", Failure.CONFIGURATION, None),
        ("HTTP 401: nobody", Failure.AUTH, 401),
        ("401 nobody", Failure.AUTH, 401),
        ("error code: 500 - {}", Failure.PROVIDER, 500),
    ],
)
def test_the_texts_of_the_real_clis_are_known(message: str, failure: Failure, http: int | None) -> None:
    assert of_message(message) == Trouble(failure, http)


@every_row(
    "message",
    [
        "it took 15290ms",
        "402913 tokens",
        "at line 401",
        "port 4290 is in use",
        "error 4012",
        "code 429.5",
        "status 301",
        "ENOENT: no such file or directory, open '/x'",
        "",
    ],
)
def test_a_number_is_a_status_only_where_one_is_said_and_when_it_is_whole(message: str) -> None:
    assert of_message(message) is None


def test_a_known_status_that_means_nothing_outranks_the_text() -> None:
    assert of_message("rate limit", 200) is None


def test_what_lies_far_behind_the_beginning_is_not_read() -> None:
    assert of_message("x " * MAX_MESSAGE + "rate limit") is None


@every_row(
    ("line", "failure"),
    [
        (
            "Error: failed to initialize in-process client: Read-only file system (os error 30)",
            Failure.SANDBOX,
        ),
        ("\x1b[91m\x1b[1mError: \x1b[0mRate limit reached\r", Failure.RATE_LIMIT),
        ("[API Error: 401 Incorrect API key provided.]", Failure.AUTH),
        ("[ERROR] Model stream ended without a finish reason.", Failure.PROVIDER),
        ("litellm.AuthenticationError: AuthenticationError: OpenAIException - no", Failure.AUTH),
        ("The API provider's servers are down or overloaded.", Failure.PROVIDER),
        ("The API provider has rate limited you.", Failure.RATE_LIMIT),
        ("EROFS: read-only file system, mkdir '/tmp/claude-0'", Failure.SANDBOX),
        ("OSError: [Errno 30] Read-only file system: '/home/.hermes'", Failure.SANDBOX),
        ('Error when talking to Gemini API Full report: x _ApiError: {"code":401}', Failure.AUTH),
        ("API call failed after 3 retries: Connection error.", Failure.NETWORK),
        ("API call failed after 3 retries: HTTP 429: x", Failure.RATE_LIMIT),
        (
            "Failed to save registry to /h/.gemini/p.json: Error: EROFS: read-only file system",
            Failure.SANDBOX,
        ),
        ("Tool output cleanup failed: EROFS: read-only file system, open '/h/x'", Failure.SANDBOX),
        ("HTTP 401: x", Failure.AUTH),
        ("Error: 401 nobody", Failure.AUTH),
        ("! permission requested: external_directory (/etc/*); auto-rejecting", Failure.PERMISSION),
        ("initialize failed: app-server closed", Failure.SANDBOX),
        ("2026-11-16T05:03:29Z ERROR: unexpected status 500 x", Failure.PROVIDER),
    ],
)
def test_a_line_that_begins_like_an_error_is_read(line: str, failure: Failure) -> None:
    trouble = of_line(line)
    assert trouble is not None
    assert trouble.failure is failure


@every_row(
    "line",
    [
        "I fixed the 401 error by sending the API key.",
        "The server answered: 429 Too Many Requests, so I added a retry.",
        "Error handling for 429 and 500 is now in client.py.",
        "Errors such as ENOTFOUND and ECONNREFUSED are retried.",
        "The test checks that `Error: rate limit` is shown.",
        "    Error: 401 Unauthorized",
        "> Error: read-only file system",
        "+    raise AuthenticationError: invalid api key",
        "- Error: 500 pages are styled",
        "| Error: | 401 |",
        "Now insufficient_quota maps to its own class.",
        "`EROFS: read-only file system` is what the kernel says.",
        'You would see "Error: usage limit" then.',
        "1. Error: 404 model not found",
        "Failed to reproduce the EROFS: it is gone.",
        "Two tests failed: ECONNREFUSED was not handled.",
        "Error: something nobody knows",
        "error:",
        "",
    ],
)
def test_talk_about_errors_is_no_error(line: str) -> None:
    assert of_line(line) is None


@every_row(
    "line",
    [
        "Error loading config.toml:",
        "Error: loading config.toml:",
        "\x1b[91m\x1b[1mError: \x1b[0mConfig file at /home/u/opencode.json is not valid JSON(C): ",
        "Config file at /home/u/.config/opencode/opencode.json is not valid JSON(C): ",
        "\x1b[31mError in /home/u/.gemini/settings.json: Expected property name or '}' in JSON at position 2",
        "Error: Cannot read operator sandbox policy from /home/u/.qwen/settings.json: SyntaxError: Expected",
    ],
)
def test_settings_that_cannot_be_read_are_told_as_that(line: str) -> None:
    assert of_line(line) == Trouble(Failure.CONFIGURATION)
