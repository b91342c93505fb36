"""Which proxy of the host leads to a host."""

from holdfast.egress.hosts import parse_host
from holdfast.egress.upstream import Proxies, Upstream, Upstreams, describe_by_name, parse_upstream
from tests.support.rows import every_row


@every_row(
    ("environ", "http", "https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "http://p", "http_proxy": "http://q"}, "http://p", None),
        ({"http_proxy": "q:8080", "https_proxy": "http://r"}, "http://q:8080", "http://r"),
        ({"ALL_PROXY": "http://a", "HTTPS_PROXY": "http://s"}, "http://a", "http://s"),
        ({"HTTP_PROXY": " ", "all_proxy": "socks5://a"}, "socks5://a", "socks5://a"),
        ({"HTTP_PROXY": "http://p", "REQUEST_METHOD": "GET"}, None, None),
    ],
)
def test_the_environment_names_the_proxy(
    environ: dict[str, str], http: str | None, https: str | None
) -> None:
    proxies = Proxies.from_environ(environ)
    assert (proxies.choose("http", "h"), proxies.choose("https", "h")) == (http, https)


@every_row(
    ("no_proxy", "host", "direct"),
    [
        ("*", "any", True),
        ("foo.org", "foo.org", True),
        ("foo.org", "a.Foo.org", True),
        ("foo.org", "xfoo.org", False),
        (".foo.org", "foo.org", True),
        ("a, ,b", "b", True),
        ("127.0.0.0/8", "127.9.9.9", True),
        ("127.0.0.0/8", "128.0.0.1", False),
        ("0.0.0.0/0", "1.2.3.4", True),
        ("127.0.0.0/8", "localhost", False),
        ("127.0.0.0/x", "127.0.0.1", False),
        ("127.0.0.0/33", "127.0.0.1", False),
        ("fe80::/10", "fe80::1", False),
        ("300.0.0.0/8", "127.0.0.1", False),
        ("[::1]", "::1", True),
        ("", "h", False),
    ],
)
def test_no_proxy_names_the_exceptions(no_proxy: str, host: str, direct: bool) -> None:
    proxies = Proxies.from_environ({"HTTP_PROXY": "http://p", "NO_PROXY": no_proxy})
    assert (proxies.choose("http", host) is None) == direct


def test_a_proxys_password_is_not_shown() -> None:
    assert "secret" not in repr(Proxies.from_environ({"ALL_PROXY": "http://u:secret@p"}))


@every_row(
    ("url", "upstream"),
    [
        ("http://p", Upstream("p", 80)),
        ("http://p:3128", Upstream("p", 3128)),
        ("http://u:p%40@p:1", Upstream("p", 1, "Basic dTpwQA==")),
        ("http://[::1]:1", Upstream("::1", 1)),
        ("https://p", None),
        ("socks5://p:1", None),
        ("http://p:x", None),
        ("http://", None),
    ],
)
def test_a_proxy_is_read_from_its_url(url: str, upstream: Upstream | None) -> None:
    assert parse_upstream(url) == upstream
    assert "Basic" not in repr(parse_upstream(url))


@every_row(
    ("host", "private", "leads"),
    [
        ("a.example", False, True),
        ("93.184.216.34", False, True),
        ("10.0.0.1", False, False),
        ("10.0.0.1", True, True),
        ("127.0.0.1", True, False),
        ("::1", True, False),
        ("localhost", True, False),
        ("direct.example", True, False),
    ],
)
def test_private_addresses_take_the_upstream_where_that_is_asked_and_loopback_never_does(
    host: str, private: bool, leads: bool
) -> None:
    proxies = Proxies.from_environ({"ALL_PROXY": "http://p", "NO_PROXY": "direct.example"})
    found = Upstreams(proxies, private).lead_to("https", parse_host(host))
    assert (found is not None) == leads


def test_without_proxies_every_way_is_direct() -> None:
    assert Upstreams().lead_to("http", parse_host("a.example")) is None


@every_row(
    ("environ", "how", "weaker"),
    [
        ({}, "", ""),
        ({"HTTPS_PROXY": "http://p:3128"}, "cannot be pinned", ""),
        ({"ALL_PROXY": "p"}, "cannot be pinned", ""),
        ({"HTTPS_PROXY": "https://p"}, "", "whose URL is not http://"),
        ({"all_proxy": "socks5://p"}, "", "whose URL is not http://"),
        ({"HTTP_PROXY": "http://p"}, "", "HTTP_PROXY alone"),
    ],
)
def test_what_connections_by_name_take_is_said(environ: dict[str, str], how: str, weaker: str) -> None:
    told = describe_by_name(Proxies.from_environ(environ))
    for text, part in zip(told, (how, weaker), strict=True):
        assert (text is None) == (not part)
        assert part in (text or "")
