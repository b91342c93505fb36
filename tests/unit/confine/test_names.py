"""The rules of a command's hosts, as they are read from what was wished."""

from typing import cast

import pytest

from holdfast.confine.names import NameBrokers, read_rules
from holdfast.egress.broker import NameBroker
from holdfast.egress.hosts import Host
from holdfast.errors import UsageError
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.sandbox.policy.policy import Policy, workspace_write

API = Host("api.test")


def wished(policy: Policy) -> HostWish:
    return policy.hosts


def test_a_key_does_not_lift_the_rules_about_requests_of_its_host() -> None:
    """In whichever order they are given; a whole host that was asked for besides a key does."""
    for policy in (
        workspace_write().keep_secret("K@api.test").allow_host("GET https://api.test/v1/"),
        workspace_write().allow_host("GET https://api.test/v1/").keep_secret("K@api.test"),
    ):
        (only,) = read_rules(wished(policy)).find_requests(API, 443)
        assert (only.methods, only.prefix) == (frozenset({"GET"}), "/v1/")
    alone = read_rules(wished(workspace_write().keep_secret("K@api.test")))
    assert (alone.find_requests(API, 443), len(alone.allow)) == ((), 1)
    other = workspace_write().keep_secret("K@api.test:8443").allow_host("GET https://api.test/v1/")
    assert read_rules(wished(other)).find_requests(API, 8443) == ()


def test_limits_are_read_with_the_rules() -> None:
    with pytest.raises(UsageError, match="is no limit"):
        read_rules(HostWish(("api.test",), limits=("fast",)))


class Holding:
    """A broker that takes descriptors as long as there are any for it."""

    def __init__(self, brokers: NameBrokers, id_: int) -> None:
        self.descriptors = 0
        brokers._brokers[id_] = cast("NameBroker", self)
        while brokers._has_room(id_, 4):
            self.descriptors += 4


def test_one_command_of_a_server_leaves_descriptors_for_the_others() -> None:
    """Each takes all that it can get, and the next one has some still."""
    brokers = NameBrokers()
    brokers._most = 512.0  # of 1,024, as most servers have
    assert [Holding(brokers, id_).descriptors for id_ in range(4)] == [384, 96, 24, 4]
