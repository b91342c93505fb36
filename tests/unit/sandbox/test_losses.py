"""Filled in with the Landlock backend."""

from holdfast.sandbox.losses import losses
from holdfast.sandbox.plan import Base, Plan
from holdfast.sandbox.select import Losses


def test_a_plan_without_carve_outs_loses_nothing() -> None:
    assert losses(Plan(Base.UNTOUCHED, (), network_off=True, cwd="/"), abi=9, degraded=False) == Losses()
