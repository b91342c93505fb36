"""Which requests pass where a rule names methods and paths, and every way to write another path."""

import pytest

from holdfast.egress.bounds.requested import grant_request, is_ambiguous, refuse_request
from holdfast.egress.hosts import Host, HostRules, Requests, parse_rule, parse_rules
from holdfast.errors import UsageError

READ = (Requests("https", frozenset({"GET", "HEAD"}), "/v1/"),)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"GET", b"/v1/"),
        (b"HEAD", b"/v1/models?x=../../admin"),
        (b"GET", b"/v1/a%2Fb"),
        (b"GET", b"/v1/a%20b/%C3%A9%E2%82%AC%F0%9F%99%82"),
        (b"GET", b"/v1/why%3F"),
        (b"GET", b"/v1/100%25"),
        (b"GET", b"/v1/..."),
        (b"GET", b"/v1//x"),
        (b"GET", b"/v1/x;v=1"),
    ],
)
def test_a_request_below_its_path_passes(method: bytes, target: bytes) -> None:
    assert refuse_request(READ, method, target, ()) is None


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"POST", b"/v1/models"),
        (b"get", b"/v1/models"),
        (b"GET", b"/v2/models"),
        (b"GET", b"/V1/models"),
        (b"GET", b"/v1"),
        (b"GET", b"/v10/"),
        (b"GET", b"//v1/"),
        (b"GET", b"/./v1/"),
        (b"GET", b"/v1/../admin"),
        (b"GET", b"/v1/.."),
        (b"GET", b"/v1/./x"),
        (b"GET", b"/v1/%2e%2e/admin"),
        (b"GET", b"/v1/%2E./admin"),
        (b"GET", b"/v1/.%2e%2fadmin"),
        (b"GET", b"/v1/..%2fadmin"),
        (b"GET", b"/v1/%252e%252e/admin"),
        (b"GET", b"/v1/%25252e%25252e%25252fadmin"),
        (b"GET", b"/v1/..;/admin"),
        (b"GET", b"/v1/..;x=1/admin"),
        (b"GET", b"/v1/..%3b/admin"),
        (b"GET", b"/v1/..%3f/admin"),
        (b"GET", b"/v1/%u002e%u002e/admin"),
        (b"GET", b"/v1/%25u002e%25u002E/admin"),
        (b"GET", b"/v1/%c0%ae%c0%ae/admin"),
        (b"GET", b"/v1/%e0%80%ae%e0%80%ae/admin"),
        (b"GET", b"/v1/%f0%80%80%ae./admin"),
        (b"GET", b"/v1/..\\admin"),
        (b"GET", b"/v1/..%5cadmin"),
        (b"GET", b"/v1/x%00/../admin"),
        (b"GET", b"/v1/x%0d%0aX: y"),
        (b"GET", b"/v1/#/../admin"),
        (b"GET", b"/v1/%23"),
        (b"GET", b"/v1/%2525252525252e"),
        (b"GET", b"/%76%31/models"),
        (b"OPTIONS", b"*"),
        (b"GET", b"v1/"),
        (b"GET", b""),
    ],
)
def test_every_other_way_to_ask_is_refused(method: bytes, target: bytes) -> None:
    assert refuse_request(READ, method, target, ()) is not None


@pytest.mark.parametrize(
    "name",
    [
        b"X-HTTP-Method-Override",
        b"x-original-url",
        b"X-Rewrite-URL",
        b"X-HTTP-Method",
        b"X_HTTP_Method_Override",
        b"X.Http.Method-Override",
        b"x_original-url",
    ],
)
def test_headers_that_mean_another_request_are_refused(name: bytes) -> None:
    assert "names another" in str(refuse_request(READ, b"GET", b"/v1/x", [b"accept", name]))
    assert refuse_request((Requests("https", None, "/"),), b"GET", b"/x", [name]) is None


def test_one_of_several_rules_is_enough() -> None:
    rules = parse_rules(
        ["GET https://api.test/v1/", "POST https://api.test/v1/chat", "https://api.test/open"]
    )
    allowed = rules.find_requests(Host("api.test"), 443)
    asked = [
        (b"GET", b"/v1/x"),
        (b"POST", b"/v1/chat"),
        (b"POST", b"/v1/x"),
        (b"DELETE", b"/open/x"),
        (b"GET", b"/opened"),
    ]
    assert [refuse_request(allowed, *one, ()) is None for one in asked] == [True, True, False, True, False]


def test_a_pattern_does_not_lift_a_rule_about_requests_and_the_whole_host_does() -> None:
    only = "GET https://api.test/v1/"
    host = Host("api.test")
    assert len(parse_rules([only, "*", "**.test", "**.api.test"]).find_requests(host, 443)) == 1
    assert parse_rules([only, "api.test:443"]).find_requests(host, 443) == ()
    assert parse_rules([only]).find_requests(host, 80) == ()
    both = parse_rules([only, "http://plain.test/a", "x.test"]).requested
    assert both.keys() == {("api.test", 443), ("plain.test", 80)}
    assert HostRules().requested == {}


@pytest.mark.parametrize(
    "text",
    [
        "https://api.test",
        "GET https://api.test/v1/",
        "GET,POST http://api.test:8080/a/b.c",
        "https://api.test:8443/",
    ],
)
def test_a_rule_about_requests_is_written_as_it_is_read(text: str) -> None:
    rule = parse_rule(text)
    assert parse_rule(str(rule)) == rule
    assert rule.covers(Host("api.test"), next(iter(rule.ports or ())))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "get https://api.test/",
            "GET  https://api.test/",
            "GET, POST https://api.test/",
            "ftp://api.test/",
        ),
        *(
            "https://*.test/",
            "https://user@api.test/",
            "https://api.test/../x",
            "https://api.test/%2e",
            "https:///x",
        ),
        *(
            "https://127.0.0.1/",
            "https://api.test/?q",
            "https://api.test/#x",
            "https://api.test/a b",
            "https://a\\b/",
        ),
        *("https://api.test:0/", "https://api.test:99999/"),
    ],
)
def test_what_is_no_rule_about_requests_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no rule about hosts"):
        parse_rule(text)


def test_requests_cannot_be_denied() -> None:
    with pytest.raises(UsageError, match="denied as a whole"):
        parse_rule("https://api.test/v1/", denies=True)


@pytest.mark.parametrize(
    ("scheme", "port", "method", "target", "grant"),
    [
        ("https", 443, b"POST", b"/v1/chat?x=1", "--allow-host 'POST https://api.test/v1/chat'"),
        ("http", 8080, b"GET", b"/", "--allow-host 'GET http://api.test:8080/'"),
        ("https", 443, b"GET", b"/v1/%2e%2e", None),
        ("https", 443, b"GET", b"/'$(rm)", None),
        ("https", 443, b"x", b"/", None),
    ],
)
def test_the_smallest_grant_is_safe_to_type(
    scheme: str, port: int, method: bytes, target: bytes, grant: str | None
) -> None:
    assert grant_request(scheme, "api.test", port, method, target) == grant


def test_a_path_that_never_ends_to_be_decoded_is_odd() -> None:
    assert is_ambiguous(b"/" + b"%25" * 3 + b"2525252541")
    assert not is_ambiguous(b"/plain/a%41")
