"""What Landlock alone cannot do for a plan, in words. Pure module.

There are three kinds. Missing guarantees are worded to follow "cannot keep". Others hold less firmly than in
namespaces. Third, operations that the policy allows but Landlock hinders; they are reported with the second
kind.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.sandbox.plan.grants import REFER_ABI, SCOPE_ABI, TRUNCATE_ABI, find_closed, find_unlisted
from holdfast.sandbox.plan.plan import MASKS, Base, Plan, StepKind
from holdfast.sandbox.plan.select import Losses

MAX_NAMED: Final = 4  # paths in one sentence; a repository may have hundreds of protected ones

_WHOLE: Final = (
    "let this host create user namespaces (in containers: the seccomp or AppArmor profile), or install "
    "bubblewrap: their sandbox keeps all of this"
)


def find_losses(plan: Plan, *, abi: int, degraded: bool) -> Losses:
    """What Landlock of this ABI cannot do for the plan."""
    return Losses(
        tuple(_list_missing(plan, abi=abi, degraded=degraded)),
        (*_list_weaker(plan, degraded=degraded), *_list_hindered(plan, abi=abi, degraded=degraded)),
        tuple(_list_remedies(plan, abi=abi, degraded=degraded)),
    )


def _list_missing(plan: Plan, *, abi: int, degraded: bool) -> Iterator[str]:
    if abi < TRUNCATE_ABI and plan.base is not Base.UNTOUCHED:
        yield "files outside the writable directories safe from truncation"
    if abi < SCOPE_ABI:
        yield "processes outside safe from signals"
    if not degraded or plan.base is Base.UNTOUCHED:
        return
    if read_only := _of_kind(plan, StepKind.READ_ONLY):
        yield f"{_name_some(read_only)} read-only"
    yield "terminals of the host out of reach"


def _list_weaker(plan: Plan, *, degraded: bool) -> Iterator[str]:
    yield "processes of the host are visible, with their arguments"
    if plan.base is Base.UNTOUCHED:
        return
    yield "mode, group and times of a file can be changed by its owner wherever it is"
    yield "shared memory in /dev/shm is the host's, open to others of the same user"
    if hidden := [step.path for step in plan.steps if step.kind in MASKS]:
        yield f"of {_name_some(hidden)} size, times and guessed names can be learned"
    if plan.later:
        yield f"{_name_some(plan.later)} can be read if it is created while the command runs"
    if degraded and (folders := _of_kind(plan, StepKind.MASK_DIRECTORY)):
        yield f"the names in {_name_some(folders)} can be listed"


def _list_hindered(plan: Plan, *, abi: int, degraded: bool) -> Iterator[str]:
    if shut := find_closed(plan, degraded=degraded):
        yield f"nothing can be created, renamed or removed directly in {_name_some(shut)}, only deeper"
    if dark := find_unlisted(plan, degraded=degraded):
        yield f"{_name_some(dark)} cannot be listed, and what is added there later not be opened"
    if abi < REFER_ABI:
        yield "files cannot be moved or linked from one directory to another"
    if plan.network_off:
        yield "no socket can be made, not even for a server on loopback; pairs of sockets can"
    else:
        yield "of unix sockets only pairs can be made"
    if plan.base is not Base.UNTOUCHED and not degraded:
        yield "no terminal can be opened except the command's own"
    yield "extended attributes, set-user-id bits, System V memory and message queues are refused"


def _list_remedies(plan: Plan, *, abi: int, degraded: bool) -> Iterator[str]:
    yield _WHOLE
    if abi < SCOPE_ABI:
        yield "a kernel of Linux 6.12 or newer has what is missing of Landlock"
    if not degraded and find_closed(plan, degraded=False) != find_closed(plan, degraded=True):
        shut = [
            path for path in find_closed(plan, degraded=False) if path not in find_closed(plan, degraded=True)
        ]
        named = _name_some(shut)
        yield f"to create files directly in {named}, give up what is protected there with --degraded"
    if not degraded and (dark := find_unlisted(plan, degraded=False)):
        yield f"to list {_name_some(dark)}, let hidden names be seen with --degraded"


def _of_kind(plan: Plan, kind: StepKind) -> list[str]:
    return [step.path for step in plan.steps if step.kind is kind]


def _name_some(paths: Iterable[str]) -> str:
    """A few of the paths, and how many more there are."""
    known = list(paths)
    more = len(known) - MAX_NAMED
    named = ", ".join(known[:MAX_NAMED])
    return f"{named} and {more} more" if more > 0 else named
