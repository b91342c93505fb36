"""Who may ask the dashboard."""

import pytest

from holdfast.errors import PeerRefused, StartupError, TokenRefused
from holdfast.web.entrance import CONTENT_POLICY, check_host, is_known, is_loopback, refusal
from tests.support.rows import every_row

TOKEN = "t0ken"
HERE = ("host", "127.0.0.1:4711")
KNOWN = ("authorization", f"Bearer {TOKEN}")


@every_row(
    "authority",
    ["127.0.0.1", "127.0.0.1:80", "127.8.9.10:1", "localhost", "LocalHost:4711", "[::1]", "[::1]:4711"],
)
def test_names_of_this_machine_are_known(authority: str) -> None:
    assert is_loopback(authority)


@every_row(
    "authority",
    [
        *(
            "",
            "example.org",
            "127.0.0.1.example.org",
            "localhost.example.org",
            "10.0.0.1",
            "[::2]",
            "192.0.2.1",
        ),
        *("0x7f.1", "2130706433", "127.0.0.1@example.org", "127.0.0.1:80:80", "[::1", "localhost ", "a\nb"),
    ],
)
def test_a_name_that_somebody_else_could_point_here_is_refused(authority: str) -> None:
    assert not is_loopback(authority)
    refused = refusal("/", [("host", authority)], TOKEN)
    assert refused is not None
    assert (refused.status, type(refused.error)) == (403, PeerRefused)


@pytest.mark.parametrize("headers", [[], [HERE, HERE]])
def test_a_request_names_its_host_once(headers: list[tuple[str, str]]) -> None:
    refused = refusal("/", headers, TOKEN)
    assert refused is not None
    assert refused.status == 403


@every_row("origin", ["http://example.org", "null", "", "http://127.0.0.1:4712", "https://127.0.0.1:4711"])
def test_a_page_of_another_origin_is_refused_even_with_the_token(origin: str) -> None:
    refused = refusal("/api/boards", [HERE, KNOWN, ("origin", origin)], TOKEN)
    assert refused is not None
    assert (refused.status, type(refused.error)) == (403, PeerRefused)


def test_the_page_itself_may_say_where_it_is_from() -> None:
    assert refusal("/api/boards", [HERE, KNOWN, ("origin", "http://127.0.0.1:4711")], TOKEN) is None


@every_row(
    "headers",
    [
        [],
        [("authorization", "Bearer wrong")],
        [("authorization", TOKEN)],
        [("authorization", f"bearer {TOKEN}")],
        [("authorization", "Bearer tök\udcff")],
        [KNOWN, KNOWN],
    ],
)
def test_below_api_nothing_is_answered_without_the_token(headers: list[tuple[str, str]]) -> None:
    refused = refusal("/api/boards", [HERE, *headers], TOKEN)
    assert refused is not None
    assert (refused.status, type(refused.error)) == (401, TokenRefused)
    assert TOKEN not in str(refused.error)


def test_the_page_needs_no_token() -> None:
    assert refusal("/", [HERE], TOKEN) is None
    assert refusal("/static/app.js", [HERE], TOKEN) is None


PAGE = ("x-holdfast", "page")


@pytest.mark.parametrize("more", [[], [("sec-fetch-site", "same-origin")]])
def test_the_cookie_of_this_home_is_enough_for_our_page(more: list[tuple[str, str]]) -> None:
    assert refusal("/api/boards", [HERE, PAGE, *more], TOKEN, has_cookie=True) is None
    assert refusal("/api/boards", [HERE, PAGE, *more], TOKEN, has_cookie=False) is not None


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-holdfast", "other")],
        [PAGE, PAGE],
        [PAGE, ("sec-fetch-site", "same-site")],
        [PAGE, ("sec-fetch-site", "cross-site")],
        [PAGE, ("sec-fetch-site", "none")],
        [PAGE, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "same-site")],
    ],
)
def test_a_cookie_counts_only_with_what_no_other_page_can_send(headers: list[tuple[str, str]]) -> None:
    refused = refusal("/api/boards", [HERE, *headers], TOKEN, has_cookie=True)
    assert refused is not None
    assert (refused.status, refused.error.remedy) == (401, "holdfast open")


def test_a_cookie_does_not_let_a_foreign_name_or_page_in() -> None:
    for headers in ([("host", "example.org"), PAGE], [HERE, PAGE, ("origin", "http://127.0.0.1:8000")]):
        refused = refusal("/api/boards", headers, TOKEN, has_cookie=True)
        assert refused is not None
        assert refused.status == 403


def test_a_token_is_known_whole() -> None:
    assert is_known(f"Bearer {TOKEN}", TOKEN)
    assert not is_known(f"Bearer {TOKEN[:-1]}", TOKEN)
    assert not is_known(None, TOKEN)


@every_row("host", ["192.0.2.1", "::", "192.168.1.2", "localhost", "example.org"])
def test_a_listener_beyond_loopback_is_refused(host: str) -> None:
    with pytest.raises(StartupError):
        check_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
def test_loopback_is_listened_on(host: str) -> None:
    assert check_host(host) == host


def test_a_page_may_run_nothing_but_what_it_came_with() -> None:
    rules = dict(rule.split(" ", 1) for rule in CONTENT_POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in CONTENT_POLICY
