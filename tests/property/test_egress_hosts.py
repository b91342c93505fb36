"""Whatever is asked for: a host is normal or refused, a denial holds, and nothing private is public."""

import ipaddress
import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.addresses import is_public
from holdfast.egress.hosts import (
    BadHost,
    Host,
    HostRules,
    Reason,
    decide,
    parse_host,
    parse_rule,
    parse_rules,
)

LABELS = st.sampled_from(["a", "b", "ab", "a-b", "a1", "api", "example", "com"])
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PORTS = st.integers(1, 65535)
PATTERNS = st.builds(
    lambda kind, name, port: f"{kind}{name}{'' if port is None else f':{port}'}",
    st.sampled_from(["", "*.", "**."]),
    NAMES,
    st.none() | st.sampled_from([22, 80, 443]),
)
TARGETS = st.tuples(NAMES, st.sampled_from([22, 80, 443]))


@given(st.text(max_size=40) | st.text(alphabet="0123456789xabcdef.:[]%-*\0 。\uff11", max_size=30))
def test_a_host_is_normal_or_refused(text: str) -> None:
    try:
        host = parse_host(text)
    except BadHost:
        return
    assert parse_host(host.name) == host
    assert host.name == host.name.lower()
    assert re.fullmatch(r"[a-z0-9_.:-]+", host.name)
    assert (host.address is None) == bool(re.search(r"[g-z_-]|[a-f]", host.name) and ":" not in host.name)


@given(NAMES, st.integers(0, 3))
def test_case_and_a_last_dot_make_no_difference(name: str, upper: int) -> None:
    changed = "".join(c.upper() if (i + upper) % 2 else c for i, c in enumerate(name))
    assert parse_host(changed + ".") == parse_host(name)


@given(st.ip_addresses())
def test_an_address_is_decided_about_by_what_it_is(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    host = parse_host(str(address))
    expected = Reason.ALLOWED if is_public(address) else Reason.NOT_ALLOWED_LOCAL
    assert decide(parse_rules(["*"]), host, 443).reason is expected


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_same_in_ipv6(address: ipaddress.IPv4Address) -> None:
    mapped, translated = (ipaddress.IPv6Address(f"{head}{address}") for head in ("::ffff:", "64:ff9b::"))
    assert is_public(mapped) == is_public(translated) == is_public(address)


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_not_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(address) and not str(address).startswith("64:ff9b::"):
        assert address.is_global or getattr(address, "ipv4_mapped", None) is not None


@given(st.lists(PATTERNS, max_size=6), st.lists(PATTERNS, max_size=6), TARGETS)
def test_decisions_agree_with_the_obvious_loop(
    allow: list[str], deny: list[str], target: tuple[str, int]
) -> None:
    name, port = target
    host = Host(name)
    rules = parse_rules(allow, deny)
    denied = any(rule.covers(host, port) for rule in rules.deny)
    allowed = any(rule.covers(host, port) for rule in rules.allow)
    expected = Reason.DENIED if denied else Reason.ALLOWED if allowed else Reason.NOT_ALLOWED
    made = decide(rules, host, port)
    assert made.reason is expected
    assert (made.rule is None) == (expected is Reason.NOT_ALLOWED)
    assert made.rule is None or made.rule.covers(host, port)


@given(st.lists(PATTERNS, max_size=6), PATTERNS, TARGETS)
def test_one_more_denial_never_allows(allow: list[str], more: str, target: tuple[str, int]) -> None:
    host, port = Host(target[0]), target[1]
    before = parse_rules(allow)
    after = HostRules(before.allow, (parse_rule(more, denies=True),))
    assert decide(before, host, port).allowed or not decide(after, host, port).allowed


@given(NAMES, NAMES)
def test_a_wildcard_covers_only_what_ends_with_a_dot_and_its_name(base: str, other: str) -> None:
    below, tree = parse_rule(f"*.{base}"), parse_rule(f"**.{base}")
    assert below.covers(Host(other), 443) == other.endswith(f".{base}")
    assert tree.covers(Host(other), 443) == (other == base or other.endswith(f".{base}"))
