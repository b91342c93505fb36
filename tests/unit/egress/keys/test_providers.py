"""Keys that a client describes: what makes sense, which variables are meant, and where their keys may go."""

from dataclasses import replace

import pytest

from holdfast.egress.keys.injection import BadUse, check_use
from holdfast.egress.keys.placeholders import Key
from holdfast.egress.keys.providers import Provider, check_providers, find_described_keys
from holdfast.errors import UsageError

GIVEN = Provider(["MY_KEY"], ["my_[a-z]+"], ["https://api.test/v1/"], auth=["bearer"])
KEY = "my_abcdefghijklmnop"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"env": []}, "no variables"),
        ({"env": ["A B"]}, "no variables"),
        ({"env": ["OPENAI_API_KEY"]}, "known without it"),
        ({"patterns": []}, "no patterns"),
        ({"patterns": ["("]}, "no patterns"),
        ({"url_prefixes": []}, "no addresses"),
        ({"url_prefixes": ["http://api.test/"]}, "of the form"),
        ({"url_prefixes": ["https://*.test/"]}, "of the form"),
        ({"url_prefixes": ["https://api.test/a/../b"]}, "of the form"),
        ({"url_prefixes": ["https://u@api.test/"]}, "of the form"),
        ({"url_prefixes": ["https://127.0.0.1/"]}, "of the form"),
        ({"url_prefix_from_env": "A=B"}, "variable with its address"),
        ({"auth": ["header"]}, "a header is named"),
        ({"header": "X-Key"}, "a header is named"),
        ({"auth": ["header"], "header": "X:Key"}, "its header is none"),
        ({"prefix": "Token "}, "before a key"),
        ({"env": ["A"] * 100}, "more than"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], why: str) -> None:
    check_providers({"p": GIVEN})
    with pytest.raises(UsageError, match=why):
        check_providers({"p": replace(GIVEN, **wrong)})  # type: ignore[arg-type]


def test_every_value_of_a_named_variable_is_one_whatever_it_looks_like() -> None:
    ((wishes, value, use),) = find_described_keys({"p": GIVEN}, {"MY_KEY": "x" * 30, "OTHER": KEY})
    assert ([(wish.name, wish.rule) for wish in wishes], value) == ([("MY_KEY", "api.test:443")], "x" * 30)
    assert use.below == {("api.test", 443, "/v1/")}
    assert find_described_keys({"p": GIVEN}, {"MY_KEY": ""}) == []
    by_variable = replace(GIVEN, url_prefixes=[], url_prefix_from_env="BASE")
    assert find_described_keys({"p": by_variable}, {"MY_KEY": KEY}) == []
    ((wishes, _, _),) = find_described_keys(
        {"p": by_variable}, {"MY_KEY": KEY, "BASE": "https://b.test:8443"}
    )
    assert [wish.rule for wish in wishes] == ["b.test:8443"]
    for env, why in (
        ({"MY_KEY": KEY, "BASE": "http://b.test/"}, "no https:// address"),
        ({"MY_KEY": "short", "BASE": "https://b.test/"}, "fewer than"),
    ):
        with pytest.raises(UsageError, match=why):
            find_described_keys({"p": by_variable}, env)


@pytest.mark.parametrize(
    ("target", "header", "why"),
    [
        (b"/v1/x?q=1", (b"Authorization", b"Bearer STANDS"), None),
        (b"/v1/x", (b"authorization", b"bearer STANDS"), None),
        (b"/v1/x", (b"X-Key", b"Token STANDS"), None),
        (b"/other", (b"X-Nothing", b"of it"), None),
        (b"/other", (b"Authorization", b"Bearer STANDS"), "not for this path"),
        (b"/v10", (b"Authorization", b"Bearer STANDS"), "not for this path"),
        (b"/v1/../other", (b"Authorization", b"Bearer STANDS"), "not for this path"),
        (b"/v1/%2e%2e/other", (b"Authorization", b"Bearer STANDS"), "not for this path"),
        (b"/v1/x", (b"Authorization", b"Basic STANDS"), "another header"),
        (b"/v1/x", (b"Authorization", b"STANDS"), "another header"),
        (b"/v1/x", (b"X-Key", b"STANDS"), "another header"),
        (b"/v1/x", (b"Cookie", b"a=STANDS"), "another header"),
    ],
)
def test_a_key_is_for_its_paths_and_headers_alone(
    target: bytes, header: tuple[bytes, bytes], why: str | None
) -> None:
    given = replace(GIVEN, auth=["bearer", "header"], header="X-Key", prefix="Token ")
    ((_, value, use),) = find_described_keys({"p": given}, {"MY_KEY": KEY})
    key = Key("MY_KEY", value, "STANDS", frozenset({("api.test", 443)}), use=use)
    if why is None:
        check_use([header], target, [key], "api.test", 443)
        return
    with pytest.raises(BadUse, match=why):
        check_use([header], target, [key], "api.test", 443)
