"""A code works once, for a minute, where it was made for; a cookie for a quarter, in its home."""

import pytest

from holdfast.web.cookies import (
    CODE_S,
    COOKIE_S,
    MAX_USED,
    Codes,
    cookie_name,
    is_good,
    make_code,
    make_cookie,
    sent_cookies,
    set_cookie,
)

KEY, OTHER = b"k" * 32, b"o" * 32
BASE, HOME = "http://127.0.0.1:4653/", "/home/me/.local/state/holdfast"
NOW = 1_700_000_000.25


def codes(key: bytes = KEY, base: str = BASE, since: float = NOW - 100) -> Codes:
    return Codes(key, base, since)


def test_a_code_works_once() -> None:
    here, code = codes(), make_code(KEY, BASE, NOW, "n")
    assert here.redeem(code, NOW + 1)
    assert not here.redeem(code, NOW + 1)
    assert not here.redeem(code, NOW + CODE_S - 1)
    assert here.redeem(make_code(KEY, BASE, NOW, "m"), NOW + 1)


@pytest.mark.parametrize("later", [CODE_S, CODE_S + 1000, -60.0])
def test_a_code_works_for_a_minute(later: float) -> None:
    assert not codes().redeem(make_code(KEY, BASE, NOW, "n"), NOW + later)
    assert codes().redeem(make_code(KEY, BASE, NOW, "n"), NOW + CODE_S - 1)


def test_a_code_of_another_key_or_for_another_address_does_not() -> None:
    assert not codes().redeem(make_code(OTHER, BASE, NOW, "n"), NOW)
    assert not codes().redeem(make_code(KEY, "http://127.0.0.1:4654/", NOW, "n"), NOW)
    assert not codes().redeem(make_cookie(KEY, HOME, NOW, "n"), NOW)


def test_a_code_from_before_the_start_does_not_since_it_may_have_been_used() -> None:
    code = make_code(KEY, BASE, NOW, "n")
    assert not codes(since=NOW + 1).redeem(code, NOW + 2)
    assert codes(since=NOW).redeem(code, NOW + 2)


@pytest.mark.parametrize("text", ["", ".", "..", "1.n.", "x" * 10_000, "1.n.ü", "nonsense"])
def test_what_nobody_made_opens_nothing(text: str) -> None:
    assert not codes().redeem(text, NOW)
    assert not is_good(text, KEY, HOME, NOW)


def test_a_code_that_was_changed_opens_nothing() -> None:
    code = make_code(KEY, BASE, NOW, "n")
    made, nonce, mac = code.split(".")
    for changed in (f"{int(made) + 1}.{nonce}.{mac}", f"{made}.m.{mac}", f"{made}.{nonce}.{mac[:-1]}"):
        assert not codes().redeem(changed, NOW)


def test_the_used_codes_are_bounded_and_forgotten_when_they_are_worthless() -> None:
    here = codes()
    for number in range(MAX_USED):
        assert here.redeem(make_code(KEY, BASE, NOW, str(number)), NOW)
    assert not here.redeem(make_code(KEY, BASE, NOW, "one more"), NOW)
    later = NOW + 2 * CODE_S
    assert here.redeem(make_code(KEY, BASE, later, "later"), later)


def test_a_cookie_is_good_for_its_home_and_its_time() -> None:
    cookie = make_cookie(KEY, HOME, NOW, "n")
    assert is_good(cookie, KEY, HOME, NOW + 1)
    assert is_good(cookie, KEY, HOME, NOW + COOKIE_S - 1)
    assert not is_good(cookie, KEY, HOME, NOW + COOKIE_S)
    assert not is_good(cookie, KEY, HOME, NOW - 60)
    assert not is_good(cookie, KEY, HOME + "2", NOW + 1)
    assert not is_good(cookie, OTHER, HOME, NOW + 1)
    assert not is_good(make_code(KEY, BASE, NOW, "n"), KEY, HOME, NOW)


def test_a_browser_keeps_it_from_scripts_and_from_other_sites() -> None:
    pair, *attributes = set_cookie(HOME, "v").split("; ")
    assert pair == f"{cookie_name(HOME)}=v"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert not any(one.lower().startswith("domain") for one in attributes)


def test_homes_have_cookies_of_their_own() -> None:
    assert cookie_name(HOME) != cookie_name(HOME + "2")
    header = f"{cookie_name(HOME)}=one; other=x; {cookie_name(HOME + '2')}=two;{cookie_name(HOME)}=three"
    assert sent_cookies(header, cookie_name(HOME)) == ["one", "three"]
    assert sent_cookies("", cookie_name(HOME)) == []
