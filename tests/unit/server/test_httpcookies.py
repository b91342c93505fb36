"""Which cookies are sent again, where, and until when: few, to one family of hosts, over https."""

from typing import Final

from holdfast.server.httpcookies import MAX_COOKIES, MAX_VALUE, NAMES, AffinityCookies, is_meant
from tests.support.rows import every_row

NOW: Final = 1_800_000_000.0


def jar(
    *headers: str, url: tuple[str, str, str] = ("https", "chatgpt.com", "/backend-api/ps/mcp")
) -> AffinityCookies:
    made = AffinityCookies()
    made.keep(*url, [header.encode("latin-1") for header in headers], NOW)
    return made


def sent(
    cookies: AffinityCookies, host: str = "chatgpt.com", path: str = "/backend-api/ps/mcp", at: float = NOW
) -> str:
    return (cookies.header("https", host, path, at) or b"").decode()


@every_row(
    ("scheme", "host", "meant"),
    [
        ("https", "chatgpt.com", True),
        ("https", "ChatGPT.com", True),
        ("https", "api.chatgpt.com", True),
        ("https", "chat.openai.com", True),
        ("https", "api.chatgpt-staging.com", True),
        ("http", "chatgpt.com", False),
        ("wss", "chatgpt.com", False),
        ("https", "evilchatgpt.com", False),
        ("https", "chatgpt.com.evil.example", False),
        ("https", "foo.chat.openai.com", False),
        ("https", "api.openai.com", False),
        ("https", "127.0.0.1", False),
    ],
)
def test_only_one_family_of_hosts_is_meant(scheme: str, host: str, meant: bool) -> None:
    assert is_meant(scheme, host) is meant
    made = jar("__cflb=lb; Path=/", url=(scheme, host, "/"))
    assert (made.header(scheme, host, "/", NOW) is not None) is meant


def test_only_names_of_the_infrastructure_are_kept() -> None:
    for name in (*NAMES, "cf_chl_rc_i"):
        assert sent(jar(f"{name}=1; Path=/")) == f"{name}=1"
    others = (
        "__Secure-next-auth.session-token",
        "oai-auth-token",
        "not_cf_clearance",
        "__CFLB",
        "",
        "cf_chl",
    )
    assert sent(jar(*(f"{name}=secret; Path=/" for name in others), "__cflb", "=x")) == ""


def test_nothing_is_sent_to_another_host_or_in_the_clear() -> None:
    made = jar("__cflb=lb; Path=/; Domain=.chatgpt.com", "_cfuvid=v; Path=/")
    assert sent(made) == "__cflb=lb; _cfuvid=v"
    assert sent(made, "api.chatgpt.com") == "__cflb=lb", "one without a domain is of its own host alone"
    assert sent(made, "chat.openai.com") == ""
    assert made.header("http", "chatgpt.com", "/", NOW) is None
    assert made.header("https", "api.openai.com", "/", NOW) is None


@every_row("domain", ["com", "openai.com", "chat.openai.com", "api.chatgpt.com", "evil.example"])
def test_a_domain_that_is_not_its_own_is_refused(domain: str) -> None:
    assert sent(jar(f"__cflb=lb; Domain={domain}; Path=/")) == ""


def test_a_path_is_heeded_and_the_longest_comes_first() -> None:
    made = jar("__cflb=all; Path=/", "__cfseq=here; Path=/backend-api", "_cfuvid=near", "__cf_bm=bad; Path=x")
    assert sent(made) == "_cfuvid=near; __cf_bm=bad; __cfseq=here; __cflb=all"
    assert sent(made, path="/backend-api") == "__cfseq=here; __cflb=all"
    assert sent(made, path="/backend-apix") == "__cflb=all"


def test_a_cookie_that_is_over_is_gone() -> None:
    made = jar("__cflb=lb; Path=/; Max-Age=60", "_cfuvid=v; Path=/; Expires=Fri, 15 Jan 2027 08:01:00 GMT")
    assert sent(made, at=NOW + 59) == "__cflb=lb; _cfuvid=v"
    assert sent(made, at=NOW + 61) == ""
    made = jar(
        "__cflb=lb; Path=/",
        "__cflb=; Path=/; Max-Age=0",
        "_cfuvid=v; Path=/; Expires=Thu, 01-Jan-1970 00:00:00 GMT",
    )
    assert sent(made) == ""
    odd = jar(
        "__cflb=lb; Path=/; Max-Age=soon; Expires=some day", "_cfuvid=v; Path=/; Expires=99 Foo 2027 08:00:00"
    )
    assert sent(odd) == "__cflb=lb; _cfuvid=v"


def test_what_is_kept_is_bounded() -> None:
    made = jar(f"__cflb={'x' * MAX_VALUE}; Path=/", "__cflb=\xff; Path=/")
    assert sent(made) == ""
    made = jar(*(f"cf_chl_{number}=1; Path=/" for number in range(MAX_COOKIES + 5)))
    assert len(sent(made).split("; ")) == MAX_COOKIES
    assert "cf_chl_0=" not in sent(made)
    assert "1" not in repr(made).replace("AffinityCookies", "")
