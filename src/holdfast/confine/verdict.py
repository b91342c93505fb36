"""How a confined command's end is read: the protocol's guess, and our own with its reason.

A name such as `.git` that does not exist can not be protected by a mount without leaving litter on
the host. So its absence is recorded before the command runs, and what appeared is moved aside once
everything inside has ended: whoever runs git there next does not run the command's hooks.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.sandbox.plan.select import Enforcement
from holdfast.sandbox.policy.policy import Network
from holdfast.sandbox.reasons.denials import Denial, DenialEvidence, classify, looks_denied
from holdfast.sandbox.values import value

if TYPE_CHECKING:
    from holdfast.confine.starts import Sandbox
    from holdfast.wire.processes import DenialReport, DeniedCall, EnforcementReport

MAX_TAIL: Final = 64 * 1024  # bytes at the end of the output that are read for a reason


def set_aside(absent: Iterable[str]) -> dict[str, str]:
    """Rename what appeared at these paths; old name to new name."""
    moved = {}
    for path in absent:
        if os.access(path, os.F_OK, follow_symlinks=False):  # after every file call: no exception to build
            aside = f"{path}.set-aside-{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                os.rename(path, aside)
                moved[path] = aside
    return moved


def denial_of(moved: dict[str, str]) -> Denial | None:
    """What to tell about it."""
    for path, aside in moved.items():
        return Denial(
            "filesystem",
            path,
            None,
            "write",
            f"{path} is protected metadata and did not exist before",
            f"--allow-write {path}",
            1.0,
            f"it was created and has been moved to {aside}",
        )
    return None


@value
class DenialVerdict:
    denied: bool = False
    denial: Denial | None = None


Judge: TypeAlias = Callable[[int, bytes], DenialVerdict]


def judge_of(sandbox: "Sandbox", cwd: str) -> Judge | None:
    """Judges a command that ran in this sandbox, and cleans up after it; None for one without."""
    if sandbox.bound is None:
        return None
    policy = sandbox.bound

    def judge(exit_code: int, output: bytes) -> DenialVerdict:
        created = denial_of(set_aside(sandbox.absent))
        if created is not None:
            return DenialVerdict(True, created)
        return DenialVerdict(
            looks_denied(exit_code, output, sandboxed=True),
            classify(
                DenialEvidence(
                    exit_code,
                    output[-MAX_TAIL:].decode("utf-8", "replace"),
                    policy.explain,
                    policy.network is Network.OFF,
                    cwd,
                    backend=sandbox.enforcement.backend,
                    fixed=sandbox.fixed,
                    exists=os.path.exists,
                    closed=sandbox.closed,
                    unlisted=sandbox.unlisted,
                )
            ),
        )

    return judge


def denial_report(denial: Denial | None) -> "DenialReport | None":
    """The wire's form of a denial."""
    if denial is None:
        return None
    from holdfast.wire.processes import DenialReport

    return DenialReport(*(getattr(denial, name) for name in DenialReport.__struct_fields__))


def enforcement_report(held: Enforcement) -> "EnforcementReport":
    """The wire's form of what holds."""
    from holdfast.wire.processes import EnforcementReport

    missing, weakened, remedies = (list(told) for told in (held.missing, held.weakened, held.remedies))
    return EnforcementReport(held.backend.value, missing, weakened, remedies, held.fingerprint)


def prove(
    denial: "Denial | DenialReport | None", seen: "Sequence[DeniedCall]"
) -> "Denial | DenialReport | None":
    """A denial read from the output, by what a watcher saw: that one if it was seen, or else the last."""
    mattered = [one for one in seen if one.access != "listen"]
    if not mattered:
        return denial
    from holdfast.wire.processes import DenialReport

    told = None if denial is None else denial.path or denial.host
    one = next((one for one in reversed(mattered) if told and told in (one.path, one.asked)), mattered[-1])
    network = one.access == "connect"
    return DenialReport(
        kind="network" if network else "filesystem",
        path=None if network else one.path,
        host=one.path if network else None,
        access=None if network else "write",
        rule=one.rule,
        grant=one.grant,
        confidence=1.0,
        evidence=f"{one.comm or 'a process'} was refused {one.syscall} of {one.asked}: {one.errno}",
    )
