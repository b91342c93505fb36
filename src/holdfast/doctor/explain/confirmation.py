"""What a text suggests against what this machine does when it is tried. Pure module."""

import errno
from dataclasses import replace
from typing import Final

from holdfast.doctor.explain.explanation import Explanation
from holdfast.sandbox.host.hostfacts import Fact, HostFacts

# By fingerprint, or by what stands before its dot: the facts it is about.
TRIED: Final = {
    "apparmor": ("uid map", "loopback"),
    "userns": ("user namespace",),
    "uidmap": ("uid map",),
    "mount.eperm": ("mount propagation", "mount calls"),
    "mount.enosys": ("mount calls",),
    "proc": ("fresh proc",),
    "netns": ("net namespace",),
    "lo": ("loopback",),
    "seccomp": ("seccomp",),
    "landlock": ("landlock",),
    "bwrap.missing": ("bwrap",),
    "bwrap.option": ("bwrap",),
    "codex.preflight": ("user namespace", "uid map", "loopback"),
    "codex.landlock-absent": ("landlock",),
    "codex.landlock-userns": ("user namespace",),
}


def compared(found: list[Explanation], host: HostFacts) -> list[Explanation]:
    """The same, each with what was found here, where something could be tried."""
    return [replace(one, here=_here(one.id, host)) for one in found]


def _here(id_: str, host: HostFacts) -> str | None:
    names = TRIED.get(id_) or TRIED.get(id_.partition(".")[0]) or ()
    facts = [fact for name in names if (fact := host.fact(name)) is not None]
    if not facts:
        return None
    refused = next((fact for fact in facts if fact.works is False), None)
    if refused is not None:
        return f"confirmed, {refused.name} is refused here ({_reason(refused)})"
    unknown = next((fact for fact in facts if fact.works is None), None)
    if unknown is not None:
        return f"{unknown.name} could not be tried here ({_reason(unknown)})"
    return f"the text suggests this, but {' and '.join(fact.name for fact in facts)} worked here just now"


def _reason(fact: Fact) -> str:
    return f"{fact.stage}: {errno.errorcode.get(fact.errno, str(fact.errno))}"
