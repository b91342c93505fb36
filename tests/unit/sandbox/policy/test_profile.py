"""Profiles: what each key means, and that a mistake names the file and the key."""

import re
import tomllib

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import is_pattern
from holdfast.sandbox.policy.policy import Access, At, Glob, Network, Place, Policy, Rule, Special, Target
from holdfast.sandbox.policy.profile import escape, policy_of
from tests.support.rows import every_row


def decode(text: str) -> Policy:
    return policy_of(tomllib.loads(text), source="p.toml", home="/home/me")


@every_row(
    ("key", "target"),
    [
        (":root", Special(Place.ROOT)),
        (":minimal", Special(Place.MINIMAL)),
        (":workspace", Special(Place.PROJECT_ROOTS)),
        (":tmpdir", Special(Place.TMPDIR)),
        (":slash_tmp", Special(Place.SLASH_TMP)),
        ("/srv/data", At("/srv/data")),
        ("~", At("/home/me")),
        ("~/notes", At("/home/me/notes")),
        ("./docs", Special(Place.PROJECT_ROOTS, "docs")),
        ("./", Special(Place.PROJECT_ROOTS)),
    ],
)
def test_a_key_is_a_place_or_a_path(key: str, target: Target) -> None:
    assert decode(f'[filesystem]\n"{key}" = "read"').rules == (Rule(target, Access.READ),)


@pytest.mark.parametrize(
    ("key", "pattern"),
    [("**/.env", "**/.env"), ("./*.pem", "*.pem"), ("~/.aws/*", "/home/me/.aws/*"), ("/x/{a,b}", "/x/{a,b}")],
)
def test_a_pattern_can_be_denied(key: str, pattern: str) -> None:
    assert decode(f'[filesystem]\n"{key}" = "deny"').rules == (Rule(Glob(pattern), Access.DENY),)


def test_every_access_has_its_word() -> None:
    rules = decode('[filesystem]\n"/a" = "read"\n"/b" = "write"\n"/c" = "deny"').rules
    assert rules is not None
    assert [rule.access for rule in rules] == [Access.READ, Access.WRITE, Access.DENY]


def test_the_network_is_off_unless_it_is_on() -> None:
    assert decode("[filesystem]").network is Network.OFF
    assert decode('network = "off"\n[filesystem]').network is Network.OFF
    assert decode('network = "on"\n[filesystem]').network is Network.ON


def test_nothing_is_allowed_by_an_empty_table() -> None:
    assert decode("[filesystem]").rules == ()


@every_row(
    ("text", "key"),
    [
        ('newtork = "on"\n[filesystem]', "newtork"),
        ('[filesystem]\n":wrkspace" = "write"', ":wrkspace"),
        ('[filesystem]\nminimal = "read"', "minimal"),
        ('[filesystem]\n"../up" = "read"', "../up"),
        ('[filesystem]\n"/x" = "rw"', "/x"),
        ('[filesystem]\n"/x" = true', "/x"),
        ('[filesystem."/x"]\naccess = "read"', "/x"),
        ('[filesystem]\n"/x/*" = "write"', "/x/*"),
        ('[filesystem]\n":minimal" = "write"', ":minimal"),
        ("network = false\n[filesystem]", "network"),
        ('network = "restricted"\n[filesystem]', "network"),
        ('network = "on"', "filesystem"),
        ('filesystem = "read"', "filesystem"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(text: str, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode(text)
    assert str(caught.value).startswith("p.toml: ")
    assert key in str(caught.value)


def test_a_home_directory_in_a_pattern_is_literal() -> None:
    tree = {"filesystem": {"~/*.key": "deny"}}
    policy = policy_of(tree, source="p.toml", home="/home/[me]")
    assert policy.rules == (Rule(Glob(r"/home/\[me\]/*.key"), Access.DENY),)


def test_an_escaped_path_is_a_pattern_of_itself() -> None:
    assert is_pattern("/a*b")
    assert not is_pattern("/a/b")
    assert escape("/a*[b]{c}?") == r"/a\*\[b\]\{c\}\?"


HOSTS = """
[filesystem]
":root" = "read"
[hosts]
"api.test" = "allow"
"**.org.test:443" = "allow"
"ads.org.test" = "deny"
private = true
[hosts.addresses]
"API.test." = "10.0.0.1"
"""


def test_hosts_have_their_verdicts() -> None:
    hosts = decode(HOSTS).hosts
    assert hosts.allow == ("api.test", "**.org.test:443")
    assert hosts.deny == ("ads.org.test",)
    assert hosts.private
    assert hosts.addresses == (("api.test", "10.0.0.1"),)


@every_row(
    ("text", "what"),
    [
        ("hosts = 3", "hosts: must be a table"),
        ('[hosts]\n"a.test" = "yes"', 'hosts."a.test": must be "allow" or "deny"'),
        ("[hosts]\nprivate = 1", "hosts.private: must be true or false"),
        ("[hosts]\naddresses = 1", "hosts.addresses: must be a table"),
        ('network = "on"\n[hosts]\n"a.test" = "allow"', "hosts: say what is left of the network"),
    ],
)
def test_a_mistake_about_hosts_is_named(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"p.toml: {what}")):
        decode(f'{text}\n[filesystem]\n":root" = "read"')
