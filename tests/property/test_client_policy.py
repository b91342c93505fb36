"""What a client asks for is what the server understands."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.policy import Policy
from holdfast.confine.permissions import policy_of, where_of
from holdfast.sandbox.policy.policy import Access, At, Glob, Network, Place, PolicyKind, Rule, Special
from holdfast.sandbox.policy.policy import Policy as Wish
from holdfast.wire.methods import METHODS, decode_params
from holdfast.wire.permissions import SandboxContext

NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=8)
PATHS = st.lists(NAMES.filter(lambda name: name not in (".", "..")), max_size=4).map(
    lambda names: "/" + "/".join(names)
)
SPECIAL = st.sampled_from([place for place in Place if place is not Place.PROJECT_ROOTS]).map(Special)
WORKSPACE = st.builds(Special, st.just(Place.PROJECT_ROOTS), st.none() | NAMES)
OPEN = st.builds(
    Rule, st.builds(At, PATHS) | SPECIAL | WORKSPACE, st.sampled_from(list(Access)), st.booleans()
)
CLOSED = st.builds(Rule, st.builds(Glob, NAMES), st.just(Access.DENY))
NETWORKS = st.sampled_from(list(Network))
WISHES = (
    st.builds(
        Wish,
        st.lists(OPEN | CLOSED, max_size=6).map(tuple),
        NETWORKS,
        st.just(PolicyKind.MANAGED),
        st.none() | st.integers(1, 64),
    )
    | st.builds(Wish, st.none(), NETWORKS, st.sampled_from([PolicyKind.MANAGED, PolicyKind.EXTERNAL]))
    | st.just(Wish(None, Network.ON, PolicyKind.DISABLED))
)


def received(policy: Policy, cwd: str) -> SandboxContext:
    """The context as the server's decoder sees it."""
    context = policy.context(cwd)
    sent = msgspec.json.encode({"path": "file:///", "sandbox": context}, enc_hook=lambda value: value.uri)
    decoded: SandboxContext = decode_params(METHODS["fs/readFile"], msgspec.json.decode(sent)).sandbox
    return decoded


@given(WISHES, st.none() | PATHS, PATHS)
def test_a_policy_survives_the_wire(wish: Wish, root: str | None, cwd: str) -> None:
    context = received(Policy(wish, root), cwd)
    assert policy_of(context) == wish
    where = where_of(context, cwd="/other", environ={}, slash_tmp=True)
    assert (where.cwd, where.workspace_roots) == (root or cwd, (root or cwd,))


@given(PATHS, PATHS, st.text("abc.", max_size=5))
def test_policies_made_by_their_methods_survive_too(root: str, path: str, name: str) -> None:
    policy = Policy.workspace_write(root).allow_write(path).allow_read(path).deny(f"*{name}")
    assert policy_of(received(policy, "/")) == policy.wish
    assert hash(policy) == hash(
        Policy.workspace_write(root).allow_write(path).allow_read(path).deny(f"*{name}")
    )
