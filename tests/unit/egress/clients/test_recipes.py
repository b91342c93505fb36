"""What settings come to: rules about one host at one port, or words about what to do."""

import pytest

from holdfast.egress.clients.recipes import RECIPES, find_hosts, grant_presets, rule_of
from holdfast.errors import UsageError
from holdfast.sandbox.policy.policy import Network, workspace_write
from tests.unit.egress.clients.scene import machine


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://a.test/simple", "a.test:443"),
        ("http://A.Test./x", "a.test:80"),
        ("https://user:secret@a.test:8443/x", "a.test:8443"),
        ("sparse+https://a.test/i/", "a.test:443"),
        ("git+ssh://git@a.test/x", "a.test:22"),
        ("git@a.test:org/x.git", "a.test:22"),
        ("https://[2001:db8::1]:8080/", "[2001:db8::1]:8080"),
        ("file:///opt/wheels", None),
        ("/opt/wheels", None),
        ("ftp://a.test/", None),
        ("https://*.test/", None),
        ("https://a b.test/", None),
        ("https://a.test:99999/", None),
        ("https://0x7f.1/", None),
        ("https://", None),
        ("", None),
        ("https://a.test\n.evil.test/", None),
    ],
)
def test_an_address_is_a_rule_about_its_host_and_port(url: str, rule: str | None) -> None:
    assert rule_of(url) == rule


@pytest.mark.parametrize("name", RECIPES)
def test_a_client_that_says_nothing_is_told_with_what_to_type(name: str) -> None:
    with pytest.raises(UsageError, match=f"--allow-net {name}: nothing outside of the workspace") as told:
        find_hosts(name, machine())
    assert told.value.remedy is not None
    assert "--allow-host" in told.value.remedy


def test_an_unknown_client_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no such preset") as told:
        find_hosts("pypi", machine())
    assert told.value.remedy is not None
    assert all(name in told.value.remedy for name in RECIPES)


def test_a_policy_gets_each_host_once_and_says_where_it_was_read() -> None:
    seen = machine({"/home/u/.npmrc": "registry=https://n.test/a\n@s:registry=https://n.test/b"})
    made = grant_presets(workspace_write().allow_net("npm").allow_net("npm").allow_host("x.test"), seen)
    assert made.hosts.allow == ("x.test", "n.test:443")
    assert made.hosts.origins == ("npm: n.test:443, from /home/u/.npmrc",)
    assert (made.hosts.presets, made.network) == ((), Network.OFF)
