"""Whatever the paths, a plan arrives as it was sent."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.light import replace
from holdfast.sandbox.plan.plan import Base, Plan, PlanLink, Step, StepKind, decode, encode

PATHS = st.binary(max_size=12).map(
    lambda raw: "/" + raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)
PLANS = st.builds(
    Plan,
    base=st.sampled_from(list(Base)),
    steps=st.lists(st.builds(Step, st.sampled_from(list(StepKind)), PATHS), max_size=5).map(tuple),
    network_off=st.booleans(),
    cwd=PATHS,
    absent=st.lists(PATHS, max_size=3).map(tuple),
    links=st.lists(st.builds(PlanLink, PATHS, PATHS), max_size=3).map(tuple),
)
PORTS = st.lists(st.integers(1, 65535), max_size=4).map(tuple)


@given(PLANS, PORTS)
def test_a_plan_survives_encoding(plan: Plan, ports: tuple[int, ...]) -> None:
    plan = replace(plan, loopback_ports=ports if plan.network_off else ())
    assert decode(encode(plan)) == plan


@given(
    st.lists(
        st.sampled_from(
            [b"host", b"off", b"off 8", b"on 8", b"off 08", b"0", b"1", b"-1", b"pin", b"/a", b""]
        ),
        max_size=10,
    )
)
def test_other_bytes_are_refused_or_are_the_encoding_of_a_plan(fields: list[bytes]) -> None:
    data = b"\0".join(fields)
    try:
        plan = decode(data)
    except ValueError:
        return
    assert encode(plan) == data
