"""The verdict on a confined command's end: the protocol's guess, and our own with its reason."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.light import replace, suppress, value
from holdfast.sandbox.plan.select import Enforcement
from holdfast.sandbox.policy.paths import parent
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Network, PathDecision
from holdfast.sandbox.reasons.denials import Denial, DenialEvidence, classify, looks_denied

if TYPE_CHECKING:
    from msgspec import UnsetType

    from holdfast.confine.starts import Sandbox
    from holdfast.egress.traffic import RefusedHost
    from holdfast.sandbox.limits import Reached
    from holdfast.wire.processes import (
        DenialReport,
        DeniedCall,
        EnforcementReport,
        LimitReport,
        NetworkReport,
    )

MAX_TAIL: Final = 64 * 1024  # bytes at the end of the output that are searched for a reason


def denial_of(moved: dict[str, str], failed: dict[str, str]) -> Denial | None:
    """The denial to report about names that appeared; those that could not be moved aside come first."""
    told = {
        path: f"it was created and could not be moved aside: {why}; look at it before you use it"
        for path, why in failed.items()
    }
    told |= {path: f"it was created and has been moved to {aside}" for path, aside in moved.items()}
    for path, words in told.items():
        return Denial(
            "filesystem",
            path,
            None,
            "write",
            f"{path} is protected metadata and did not exist before",
            f"--allow-write {path}",
            1.0,
            words,
            witnessed=True,
        )
    return None


@value
class DenialVerdict:
    denied: bool = False
    denial: Denial | None = None


Judge: TypeAlias = Callable[[int, bytes], DenialVerdict]


def _explain_real(policy: BoundPolicy, path: str, access: Access) -> PathDecision:
    """The policy's decision on a path; if it is allowed and a link, the decision on the link's target."""
    decision = policy.explain(path, access)
    if not decision.allowed and access is Access.READ and decision.rule is not None and os.path.islink(path):
        # If the directory is hidden, rather than merely not granted, a link in it cannot be shown alone.
        return replace(decision, grant=policy.explain(parent(path), Access.READ).grant)
    real = path
    with suppress(UnicodeEncodeError):  # this locale cannot encode the name: no link that we could follow
        real = os.path.realpath(path) if decision.allowed else path
    return decision if real == path else policy.explain(real, access)


def find_hidden(policy: BoundPolicy, program: str, search: str) -> tuple[str, PathDecision] | None:
    """The first file that this policy hides among a program and its interpreters, as they are on disk now."""
    from holdfast.sandbox.plan.prerequisites import find_interpreters

    for path in find_interpreters(program, search):
        decision = _explain_real(policy, path, Access.READ)
        if not decision.allowed:
            return path, decision
    return None


def judge_of(sandbox: "Sandbox", cwd: str) -> Judge | None:
    """A judge for a command that ran in this sandbox, which also cleans up; None without a sandbox."""
    if sandbox.bound is None:
        return None
    policy = sandbox.bound

    def judge(exit_code: int, output: bytes) -> DenialVerdict:
        created = None
        if sandbox.held is not None:
            created = denial_of(*sandbox.held.set_aside())
            sandbox.held.close()
        if created is not None:
            return DenialVerdict(True, created)
        if exit_code == 0:
            return DenialVerdict(False, None)
        return DenialVerdict(
            looks_denied(exit_code, output, sandboxed=True, network_off=policy.network is Network.OFF),
            classify(
                DenialEvidence(
                    exit_code,
                    output[-MAX_TAIL:].decode("utf-8", "replace"),
                    lambda path, access: _explain_real(policy, path, access),
                    policy.network is Network.OFF,
                    cwd,
                    backend=sandbox.enforcement.backend,
                    fixed=sandbox.fixed,
                    exists=os.path.exists,
                    closed=sandbox.closed,
                    unlisted=sandbox.unlisted,
                    home=os.path.expanduser("~"),
                    hidden=lambda written: find_hidden(
                        policy,
                        os.path.join(cwd, written) if "/" in written else written,
                        os.environ.get("PATH", os.defpath),
                    ),
                    by_name=policy.by_name,
                )
            ),
        )

    return judge


def denial_report(denial: Denial | None) -> "DenialReport | None":
    """The wire form of a denial."""
    if denial is None:
        return None
    from holdfast.wire.processes import DenialReport

    return DenialReport(*(getattr(denial, name) for name in DenialReport.__struct_fields__))


def enforcement_report(held: Enforcement) -> "EnforcementReport":
    """The wire form of what is enforced."""
    from holdfast.wire.processes import EnforcementReport

    missing, weakened, remedies = (list(told) for told in (held.missing, held.weakened, held.remedies))
    limits, network = list(held.limits), list(held.network)
    return EnforcementReport(
        held.backend.value, missing, weakened, remedies, held.fingerprint, limits, network
    )


def limit_report(reached: "Reached | None") -> "LimitReport | UnsetType":
    """The wire form of a limit that was reached."""
    from msgspec import UNSET

    from holdfast.wire.processes import LimitReport

    if reached is None:
        return UNSET
    return LimitReport(*(getattr(reached, name) for name in LimitReport.__struct_fields__))


def network_report(traffic: "Mapping[str, Any] | None") -> "NetworkReport | UnsetType":
    """The wire form of the traffic to hosts reached by name."""
    from msgspec import UNSET

    from holdfast.wire.processes import HostRefusal, HostTraffic, NetworkReport

    if traffic is None:
        return UNSET
    counted = [
        {**row, "bytes_sent": row["sent"], "bytes_received": row["received"]} for row in traffic["sent"]
    ]
    sent = [HostTraffic(*(row[name] for name in HostTraffic.__struct_fields__)) for row in counted]
    return NetworkReport(sent, [HostRefusal(**row) for row in traffic["refused"]], traffic["dropped"])


def denial_of_host(process_id: str, refused: "RefusedHost", count: int, *, at_ms: int) -> "DeniedCall":
    """A report on `count` more refusals of a host, in a watcher's form; its path is the host (and port)."""
    from holdfast.confine.deniedlog import NAME_LOOKUP
    from holdfast.wire.processes import DeniedCall

    named = refused.host if refused.port is None else f"{refused.host}:{refused.port}"
    unknown = refused.port is None
    return DeniedCall(
        process_id=process_id,
        number=0,
        access="connect",
        asked=named,
        path=named,
        syscall=NAME_LOOKUP if unknown else "connect",
        errno="EAI_NONAME" if unknown else "ECONNREFUSED",
        predicted=False,
        pid=0,
        comm=refused.program or "",
        count=count,
        at_ms=at_ms,
        rule=refused.rule,
        grant=refused.grant,
    )


def prove_by_name(denial: Denial | None, traffic: "Mapping[str, Any] | None") -> Denial | None:
    """Replace a denial read from the output by a refused host: the same one if refused, else the last."""
    refused = traffic["refused"] if traffic else ()
    if not refused or (denial is not None and denial.kind != "network"):
        return denial
    named = None if denial is None else denial.host
    row = next((row for row in refused if row["host"] == named), refused[-1])
    times = "once" if row["count"] == 1 else f"{row['count']} times"
    what = "asked for by its name" if row["port"] is None else f"connected to at port {row['port']}"
    who = f" by {row['program']}" if row["program"] else ""
    evidence = f"{row['host']} was {what}{who}, {times}"
    return Denial(
        "network", None, row["host"], None, row["rule"], row["grant"], 1.0, evidence, witnessed=True
    )


def prove(
    denial: "Denial | DenialReport | None", seen: "Sequence[DeniedCall]"
) -> "Denial | DenialReport | None":
    """Replace a denial read from the output by one that a watcher saw: the same if seen, else the last."""
    mattered = [one for one in seen if one.access != "listen"]
    if not mattered:
        return denial
    from holdfast.wire.processes import DenialReport

    told = None if denial is None else denial.path or denial.host
    one = next((one for one in reversed(mattered) if told and told in (one.path, one.asked)), mattered[-1])
    connection = one.access in ("connect", "socket")
    return DenialReport(
        kind="network" if connection else "filesystem",
        path=None if one.access == "connect" else one.path,
        host=one.path if one.access == "connect" else None,
        access=None if connection else "write",
        rule=one.rule,
        grant=one.grant,
        confidence=1.0,
        evidence=f"{one.comm or 'a process'} was refused {one.syscall} of {one.asked}: {one.errno}",
        witnessed=True,
    )
