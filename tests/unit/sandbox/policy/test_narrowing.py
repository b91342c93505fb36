"""What is left of a policy under a ceiling, by example; the property tests have the rest."""

from dataclasses import dataclass

from holdfast.light import replace
from holdfast.sandbox.policy.narrowing import find_excess, narrow
from holdfast.sandbox.policy.policy import (
    Access,
    BoundPolicy,
    Network,
    Policy,
    PolicyKind,
    Where,
    bind,
    full_access,
    read_only,
    workspace_write,
)
from tests.support.rows import every_row

WORK = Where("/project", ("/project",), "/state/tmp", slash_tmp=False)
CEILING = bind(
    workspace_write(network=Network.OFF).deny("/state").allow_write("/state/tmp").deny("/home"), WORK
)


def of(policy: Policy) -> BoundPolicy:
    return bind(policy, WORK)


@dataclass(frozen=True)
class Row:
    asked: Policy
    path: str
    read: bool
    write: bool


ROWS = {
    "the same": Row(workspace_write(), "/project/a", True, True),
    "a full access is the ceiling": Row(full_access(), "/project/a", True, True),
    "and no more": Row(full_access(), "/etc/x", True, False),
    "nor what it denies": Row(full_access(), "/home/u/.ssh", False, False),
    "read only stays read only": Row(read_only(), "/project/a", True, False),
    "a grant of the whole disk": Row(read_only().allow_write("/"), "/etc/x", True, False),
    "a grant below what is denied": Row(read_only().allow_write("/home/u"), "/home/u/x", False, False),
    "a denial of one's own": Row(workspace_write().deny("/project/secret"), "/project/secret", False, False),
    "metadata stays protected": Row(
        read_only().allow_write("/project/.git"), "/project/.git/hooks", True, False
    ),
    "a directory below a denied one": Row(workspace_write(), "/state/tmp/x", True, True),
    "and its neighbour": Row(full_access(), "/state/auth.json", False, False),
    "a pattern of one's own": Row(workspace_write().deny_glob("**/*.env"), "/project/a.env", False, False),
}


@every_row("row", list(ROWS.values()), ids=list(ROWS))
def test_both_must_allow_it(row: Row) -> None:
    narrowed = narrow(of(row.asked), CEILING)
    said = (
        narrowed.explain(row.path, Access.READ).allowed,
        narrowed.explain(row.path, Access.WRITE).allowed,
    )
    assert said == (row.read, row.write)
    assert find_excess(narrowed, CEILING) is None


def test_the_network_and_sockets_are_what_both_grant() -> None:
    asked = of(read_only(Network.ON).allow_socket("/run/a").allow_socket("/run/b"))
    ceiling = of(workspace_write(network=Network.ON).allow_socket("/run/b").allow_socket("/run/c"))
    assert narrow(asked, ceiling).network is Network.ON
    assert narrow(asked, CEILING).network is Network.OFF
    assert narrow(asked, ceiling).sockets == ("/run/b",)
    assert narrow(of(full_access()), ceiling).sockets == ("/run/b", "/run/c")
    assert narrow(asked, of(full_access())).sockets == asked.sockets


def test_without_files_to_restrict_the_stricter_kind_remains() -> None:
    whole = of(Policy(None, Network.OFF))
    assert narrow(of(full_access()), whole).kind is PolicyKind.MANAGED
    assert narrow(whole, of(full_access())).network is Network.OFF
    assert narrow(of(full_access()), of(full_access())).kind is PolicyKind.DISABLED


def test_what_exceeds_a_ceiling_is_named() -> None:
    open_net = of(workspace_write(network=Network.ON))
    sockets = of(workspace_write().allow_socket("/run/a"))
    assert find_excess(open_net, CEILING) == "the network"
    assert find_excess(sockets, CEILING) == "/run/a"
    assert find_excess(of(full_access()), of(Policy(None, Network.ON))) == "every unix socket"
    assert find_excess(of(Policy(None, Network.OFF)), CEILING) == "/"
    assert find_excess(of(workspace_write()), CEILING) == "/state"
    assert (
        find_excess(CEILING, of(workspace_write().deny("/home").deny_glob("**/*.env"))) == "/project/**/*.env"
    )
    assert find_excess(CEILING, of(full_access())) is None


def test_a_name_that_only_one_of_them_holds_back_where_it_is_missing_is_held_back() -> None:
    asked = of(workspace_write())
    ceiling = of(workspace_write().deny("/project/later"))
    [rule] = [rule for rule in narrow(asked, ceiling).rules if rule.path == "/project/later"]
    assert (rule.access, rule.skip_missing) == (Access.DENY, False)
    [metadata] = [rule for rule in narrow(asked, ceiling).rules if rule.path == "/project/.git"]
    assert (metadata.access, metadata.skip_missing, metadata.protects) == (Access.READ, True, "/project")


def test_patterns_are_searched_for_as_deep_as_either_wants() -> None:
    deep, flat = (of(Policy(read_only().rules, Network.OFF, glob_depth=depth)) for depth in (7, 2))
    assert narrow(deep, flat).glob_depth == narrow(flat, deep).glob_depth == 7
    assert narrow(flat, CEILING).glob_depth is None


BY_NAME = bind(
    workspace_write().allow_host("api.test").allow_host("**.org.test").deny_host("ads.org.test"), WORK
)


def test_hosts_are_those_of_both() -> None:
    asked = of(workspace_write().allow_host("api.test").allow_host("evil.test").deny_host("x.org.test"))
    left = narrow(asked, BY_NAME)
    assert left.hosts.allow == ("api.test",)
    assert set(left.hosts.deny) == {"x.org.test", "ads.org.test"}
    assert find_excess(left, BY_NAME) is None
    assert find_excess(asked, BY_NAME) == "a host"


def test_whoever_asks_for_all_gets_the_hosts_of_the_ceiling() -> None:
    left = narrow(of(workspace_write(network=Network.ON)), BY_NAME)
    assert (left.network, left.hosts) == (Network.OFF, BY_NAME.hosts)
    assert find_excess(left, BY_NAME) is None
    assert narrow(BY_NAME, of(workspace_write(network=Network.ON))).hosts == BY_NAME.hosts
    assert not narrow(BY_NAME, CEILING).by_name
    assert find_excess(BY_NAME, CEILING) == "a host"


def test_where_a_host_is_only_the_ceiling_says() -> None:
    elsewhere = replace(
        BY_NAME, hosts=replace(BY_NAME.hosts, addresses=(("api.test", "8.8.8.8"),), private=True)
    )
    left = narrow(elsewhere, BY_NAME)
    assert (left.hosts.addresses, left.hosts.private) == ((), False)
    assert find_excess(elsewhere, BY_NAME) == "a host"


def test_a_pattern_gives_back_no_host_of_which_certain_requests_are_allowed() -> None:
    """A rule about requests takes its host out of a pattern: without it the pattern would be more."""
    rule = "GET https://api.org.test/v1/"
    ceiling = of(workspace_write().allow_host("**.org.test").allow_host("api.test").allow_host(rule))
    without = of(workspace_write().allow_host("**.org.test").allow_host("api.test"))
    left = narrow(without, ceiling)
    assert left.hosts.allow == ("api.test",)
    assert find_excess(left, ceiling) is None
    assert find_excess(without, ceiling) == "a host"
    assert narrow(ceiling, ceiling).hosts.allow == ceiling.hosts.allow
    assert narrow(ceiling, without).hosts.allow == ("api.test",)
    for plain in (rule.replace("https", "http"), "*"):
        other = of(workspace_write().allow_host("*").allow_host(plain))
        assert narrow(of(workspace_write().allow_host("*")), other).hosts.allow == (
            () if "://" in plain else ("*",)
        )
