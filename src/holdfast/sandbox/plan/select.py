"""Choose the backend on this host that meets a policy's needs. Pure module.

This is the interface between the server and the sandbox: needs and trials go in, an enforcement comes out. A
trial is the outcome of one kind of start on this host (`confine/sandboxes.py` makes them). A need that
nothing meets is refused: a command that asked for limits never runs without them.
"""

import errno

from holdfast.errors import SandboxUnavailable
from holdfast.light import TYPE_CHECKING, Final, Mapping, StrEnum, replace, value
from holdfast.sandbox.policy.policy import Need

if TYPE_CHECKING:
    from holdfast.sandbox.reasons.fingerprints import Fingerprint


class Backend(StrEnum):
    NONE = "none"
    NAMESPACES = "namespaces"
    BWRAP = "bwrap"
    LANDLOCK = "landlock"


class Way(StrEnum):
    """One way to confine a command; the strongest first."""

    USER_NAMESPACE = "user namespace"
    AS_ROOT = "root's own namespaces"
    BWRAP = "bwrap"
    LANDLOCK = "landlock"


BACKENDS: Final = {
    Way.USER_NAMESPACE: Backend.NAMESPACES,
    Way.AS_ROOT: Backend.NAMESPACES,
    Way.BWRAP: Backend.BWRAP,
    Way.LANDLOCK: Backend.LANDLOCK,
}


@value
class Choice:
    """The operator's choice: a backend (None: the strongest), and whether degraded enforcement is allowed."""

    backend: Backend | None = None
    degraded: bool = False

    def ways(self, *, root: bool) -> tuple[Way, ...]:
        """The ways to try, in this order, until one works."""
        return tuple(
            way for way in Way if self.backend in (None, BACKENDS[way]) and (root or way is not Way.AS_ROOT)
        )


ANY: Final = Choice()


_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


@value
class Trial:
    """The outcome of trying one way to confine a command; with an errno, the stage where it failed."""

    stage: str = ""
    errno: int = 0
    weakened: tuple[str, ...] = ()
    tool: str = ""  # the external program that confines, if any

    @property
    def works(self) -> bool:
        return self.errno == 0

    @property
    def may_pass(self) -> bool:
        """Whether it failed for lack of a resource that this machine may have again."""
        return self.errno in _SHORT


@value
class Losses:
    """What a backend cannot do for one plan.

    `missing` is not enforced at all, and is accepted only if the operator allows degraded enforcement.
    `weakened` holds less firmly than elsewhere. `remedies` say what would restore it.
    """

    missing: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@value
class Enforcement:
    """The answer, always reported to the caller: what is really enforced."""

    backend: Backend
    missing: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    fingerprint: str | None = None  # the cause, if this is not the strongest way or something is missing
    way: Way | None = None
    tool: str = ""
    limits: tuple[str, ...] = ()  # how each limit on resources is enforced
    network: tuple[str, ...] = ()  # how hosts are reached by name, if they are


UNCONFINED: Final = Enforcement(Backend.NONE)
_EVERYWHERE: Final = frozenset({Need.FILE_SYSTEM, Need.NETWORK_OFF})
# Ports and names need sockets made in a network namespace; granted sockets need a broker.
_MET: Final = {
    Backend.NAMESPACES: _EVERYWHERE | {Need.LOOPBACK_PORTS, Need.UNIX_SOCKETS, Need.HOSTS_BY_NAME},
    Backend.BWRAP: _EVERYWHERE | {Need.LOOPBACK_PORTS, Need.HOSTS_BY_NAME},
    Backend.LANDLOCK: _EVERYWHERE,
}

BY_NAME: Final = (
    "by name: allowed hosts have addresses of the command's own network namespace, nothing else has any",
    "by name: a broker outside looks hosts up, dials them, and compares what TLS and HTTP name in the clear",
    "by name: in TLS that is not inspected nothing is seen: its server may serve another host (fronting)",
)
LABELS: Final = "by name: what is written into the labels of a pattern's names reaches its name servers"

# The meaning for a user of each word that a set-up reports as weaker.
WEAKNESSES: Final = {
    "landlock": "no second layer: Landlock is not in force",
    "proc": "the host's process list is visible: a fresh /proc could not be mounted",
    "sockets": "of unix sockets a command can make only pairs: no broker tells its own from the host's",
    "masks": "what is denied or protected may stay uncovered once a process outside replaces it: "
    "not all of its directories can be watched",
    "loopback": "servers inside cannot be reached from inside: lo is down",
}
CAUSED: Final = ("proc", "loopback")  # words that have one cause, whatever the errno


def meets(way: Way, needs: frozenset[Need]) -> bool:
    """Whether this way, if it works, meets all of these needs."""
    return needs <= _MET[BACKENDS[way]]


def _find_cause(stage: str, code: int) -> "Fingerprint | None":
    from holdfast.sandbox.reasons import fingerprints

    return fingerprints.by_errno(stage, code)


def select(needs: frozenset[Need], trials: Mapping[Way, Trial]) -> Enforcement:
    """The strongest way that was tried, works, and meets every need.

    Raises:
        SandboxUnavailable: there is none; nothing may be run.
    """
    if not needs:
        return UNCONFINED
    refused: list[Fingerprint | None] = []
    for way in Way:
        trial = trials.get(way)
        if trial is None:
            continue
        if trial.works and needs <= _MET[BACKENDS[way]]:
            return _build_enforcement(way, trial, refused)
        refused.append(_find_cause(trial.stage, trial.errno))
    raise _refusal(needs, trials)


def _build_enforcement(way: Way, trial: Trial, refused: "list[Fingerprint | None]") -> Enforcement:
    """The enforcement of a way that works, with remedies for more: a weaker way is never taken silently."""
    causes = [known for known in refused if known is not None]
    weaknesses = [
        known for word in CAUSED if word in trial.weakened and (known := _find_cause(word, 0)) is not None
    ]
    curable = weaknesses if BACKENDS[way] is Backend.NAMESPACES else [*causes, *weaknesses]
    return Enforcement(
        BACKENDS[way],
        weakened=tuple(WEAKNESSES.get(word, word) for word in trial.weakened),
        remedies=tuple(dict.fromkeys(known.remedy for known in curable)),
        fingerprint=next((known.id for known in (*causes, *weaknesses)), None),
        way=way,
        tool=trial.tool,
    )


def _refusal(needs: frozenset[Need], trials: Mapping[Way, Trial]) -> SandboxUnavailable:
    """The error with every refusal; its remedy is for the strongest way."""
    tried = [(way, trials[way]) for way in Way if way in trials]
    found = [_find_cause(trial.stage, trial.errno) for _, trial in tried]
    told = [
        f"{way} cannot do {', '.join(sorted(needs - _MET[BACKENDS[way]]))}"
        if trial.works
        else f"{way}: {_where(trial, known)}"
        + (f"{known.cause} [{known.id}]" if known else "for no known reason")
        for (way, trial), known in zip(tried, found, strict=True)
    ]
    able = " or ".join(backend for backend, met in _MET.items() if needs <= met)
    lacks = f"take another backend: {able}" if able and all(trial.works for _, trial in tried) else None
    return SandboxUnavailable(
        f"sandbox intent cannot be enforced on this executor: {'; '.join(told)}",
        remedy=next((known.remedy for known in found if known), lacks),
        fingerprint=next((known.id for known in found if known), None),
    )


def _where(trial: Trial, known: "Fingerprint | None") -> str:
    if known is not None and known.id == trial.stage.removeprefix("bwrap:"):
        return ""  # no stage of our own: bubblewrap is missing, or reported itself what failed
    return f"{trial.stage} failed ({errno.errorcode.get(trial.errno, trial.errno)}), "


def declare(held: Enforcement, losses: Losses, *, degraded: bool) -> Enforcement:
    """Add the losses of one plan to the enforcement.

    Raises:
        SandboxUnavailable: something is missing, and degraded enforcement is not allowed.
    """
    if losses.missing and not degraded:
        raise SandboxUnavailable(
            f"sandbox intent cannot be enforced on this executor: the {held.backend} backend cannot keep "
            + "; ".join(losses.missing),
            remedy="; ".join((*losses.remedies, "or allow what is missing with --degraded")),
        )
    return replace(
        held,
        missing=held.missing + losses.missing,
        weakened=held.weakened + losses.weakened,
        remedies=held.remedies + losses.remedies,
    )
