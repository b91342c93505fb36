"""What is said of one start besides what is known of its kind."""

import os

import pytest

from holdfast.confine.starts import StartedCommand, confined_by, with_limits
from holdfast.sandbox.plan.plan import Base, Plan
from holdfast.sandbox.plan.select import LABELS, UNCONFINED, WEAKNESSES, Backend, Enforcement, Way
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.sandbox.policy.policy import Where, bind, read_only

BOUND = bind(read_only(), Where("/w", ("/w",), slash_tmp=False))


def test_what_came_out_weaker_in_this_start_alone_is_said_once() -> None:
    held = Enforcement(Backend.NAMESPACES, weakened=(WEAKNESSES["landlock"],))
    started = StartedCommand(1, 2, ("landlock", "masks"))
    told = with_limits(held, started, BOUND)
    assert told.weakened == (WEAKNESSES["landlock"], WEAKNESSES["masks"])


def test_a_start_as_it_was_expected_changes_nothing() -> None:
    held = Enforcement(Backend.NAMESPACES)
    assert with_limits(held, StartedCommand(1, 2), BOUND) == held


def test_where_nothing_is_confined_nothing_is_weaker() -> None:
    assert with_limits(UNCONFINED, StartedCommand(1, 2, ("masks",)), None) == UNCONFINED


def by_name(*allow: str, ask_s: float = 0.0) -> Enforcement:
    held = Enforcement(Backend.NAMESPACES, way=Way.USER_NAMESPACE)
    wish = HostWish(allow=allow, ask_s=ask_s)
    plan = Plan(Base.HOST, (), network_off=True, cwd="/", by_name=True, hosts=wish)
    return confined_by(held, plan, degraded=False)[0]


def test_what_hosts_by_name_do_not_see_is_said() -> None:
    assert any("(fronting)" in text for text in by_name("a.example").network)
    assert LABELS not in by_name("a.example").network
    assert LABELS in by_name("a.example", "*.b.example:443").network
    assert LABELS in by_name(ask_s=60.0).network


def test_a_proxy_on_the_way_of_hosts_by_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert not by_name("a.example").weakened
    monkeypatch.setenv("https_proxy", "http://p.example:3128")
    assert any("cannot be pinned" in text for text in by_name("a.example").network)
    monkeypatch.setenv("https_proxy", "socks5://p.example")
    assert any("not http://" in text for text in by_name("a.example").weakened)
