"""What of a plan lasts only as long as nobody outside replaces what it covers. Pure module.

A mount lies on what was there when it was made. Whoever replaces that on the host, by renaming something over
it say, leaves the command with what is new and nothing over it. So does who makes something at a denied path
at which nothing was. Each such path is a cover: to be put back as soon as something appears there.

The launcher imports this.
"""

from holdfast.light import Final, value
from holdfast.sandbox.plan.plan import MASKS, Base, Plan, StepKind

MAX_COVERS: Final = 512  # of one command; those in writable roots come first
MAX_FOLDERS: Final = 1024  # watched for one command; a user has some ten thousand
_OWN: Final = ("/dev/", "/proc/")  # of the view's own making


@value
class Cover:
    """A path and what must be over it: a mask, or itself read-only.

    `pins` are directories above that the command must not move.
    """

    path: str
    read_only: bool
    pins: tuple[str, ...] = ()


def covers_of(plan: Plan) -> tuple[tuple[Cover, ...], bool]:
    """What is to be put back while the command of this plan runs, and whether that is all."""
    pins = [step.path for step in plan.steps if step.kind is StepKind.PIN]
    found = [
        (step.path, step.kind is StepKind.READ_ONLY)
        for step in plan.steps
        if step.kind in (*MASKS, StepKind.READ_ONLY) and not step.path.startswith(_OWN)
    ]
    found += ((path, False) for path in plan.later)
    found.sort(key=lambda cover: not plan.may_replace(cover[0]))
    kept = [
        Cover(path, read_only, tuple(pin for pin in pins if path.startswith(f"{pin}/")))
        for path, read_only in found[:MAX_COVERS]
    ]
    return tuple(kept), len(kept) == len(found)


def names_of(path: str) -> list[tuple[str, str]]:
    """Every directory on the way to a path, from the root on, with the name that leads on from there."""
    found, at = [], ""
    for name in path[1:].split("/"):
        found.append((at or "/", name))
        at = f"{at}/{name}"
    return found


UNCOVERED_BY_BWRAP: Final = (
    "what is denied or protected is not covered again when a process outside replaces it"
)


def declare_bwrap(plan: Plan) -> tuple[str, ...]:
    """What bubblewrap, which lets nobody into its namespaces, cannot keep of a plan."""
    return (UNCOVERED_BY_BWRAP,) if plan.base is not Base.UNTOUCHED and plan.covers else ()
