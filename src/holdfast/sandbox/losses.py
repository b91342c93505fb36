"""What Landlock alone cannot do for a plan, in words. Pure module."""

from holdfast.sandbox.plan import Plan
from holdfast.sandbox.select import Losses


def losses(plan: Plan, *, abi: int, degraded: bool) -> Losses:
    """What Landlock of this ABI cannot do for the plan."""
    return Losses()
