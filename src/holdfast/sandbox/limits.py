"""Limits on a command's resources, its actual use, and the judgement when a limit is exceeded. Pure module.

Standard library only: the launcher imports this.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from holdfast.light import value

UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
KILLED: Final = 137  # exit code of `exec` after a limit, as after SIGKILL in shells and containers
TIMED_OUT: Final = 124  # and after the time limit, as with timeout(1)
_FILE_TOO_LARGE: Final = 128 + 25  # SIGXFSZ

# Minimum values: with less, not even the processes around a command could be set up.
_LEAST: Final = {
    "memory": 16 << 20,  # an interpreter that waits as PID 1, and a shell
    "pids": 1,
    "cpus": 0.01,  # the smallest share that the kernel takes
    "disk": 1 << 20,  # files in memory that the set-up writes are counted too
    "open_files": 128,  # the set-up keeps descriptors above the command's own
    "timeout": 0.001,
}
_MOST: Final = 1 << 60  # the largest value that every kernel interface accepts

# How often a command is sampled where the kernel does not enforce the limit: before the fastest program
# could have used up the rest, within bounds that cost little and notice a breach soon.
_FILLS_PER_S: Final = 4 << 30  # bytes that a process can touch
_FORKS_PER_S: Final = 10_000
SOONEST_S, LATEST_S = 0.02, 0.2
HELD_S: Final = 1.0  # if the kernel enforces all limits, and sampling only ends what is left of a command
GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL at the time limit, as in `local/relay.py`


class Means(enum.Enum):
    """How a limit is enforced. The value is what an event carries."""

    V2 = "2"
    V1 = "1"
    RLIMIT = "r"
    OWN_USERNS = "n"  # RLIMIT_NPROC, which counts each user namespace separately
    PER_USER = "u"  # RLIMIT_NPROC, which counts all processes of the user, plus sampling
    SAMPLED = "s"
    AFFINITY = "a"
    CLOCK = "k"


SEEN_BY_LOOKING: Final = (Means.SAMPLED, Means.OWN_USERNS, Means.PER_USER)
_LETTERS: Final = {"memory": "m", "pids": "p", "cpus": "c", "disk": "d", "open_files": "f", "timeout": "t"}
_WORD: Final = "lim."  # same as `orders.LIMITS`
_MEANS: Final = {
    Means.V2: "cgroup v2",
    Means.V1: "cgroup v1",
    Means.RLIMIT: "rlimit",
    Means.OWN_USERNS: "rlimit of its own user namespace",
    Means.PER_USER: "rlimit per user, and sampled",
    Means.SAMPLED: "sampled",
    Means.AFFINITY: "processor affinity",
    Means.CLOCK: "clock",
}
_EVERY: Final = f"looked at every {SOONEST_S * 1000:.0f} to {LATEST_S * 1000:.0f} ms"
_WEAKER: Final = {
    ("memory", Means.SAMPLED): f"memory: {_EVERY}, not held by the kernel; files in memory are not counted",
    ("pids", Means.SAMPLED): f"processes: {_EVERY}, not held by the kernel",
    (
        "pids",
        Means.PER_USER,
    ): f"processes: {_EVERY}; the kernel counts all of this user's, and holds only what is far more",
    ("cpus", Means.AFFINITY): "processors: held to whole ones by affinity, which a program can change",
    ("disk", Means.SAMPLED): f"disk: one file by rlimit, the sum {_EVERY}; what an ended process wrote "
    "counts only if its parent waited for it",
}


@value
class Limits:
    """What a command and all its descendants may use together; None means no limit.

    `memory` and `disk` are bytes, `pids` counts processes and threads, `cpus` is processors' worth of time.
    """

    memory: int | None = None
    pids: int | None = None
    cpus: float | None = None
    disk: int | None = None
    open_files: int | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if a value is impossible."""
        for name, least in _LEAST.items():
            content = self.timeout_s if name == "timeout" else getattr(self, name)
            if content is not None and not least <= content <= _MOST:
                raise ValueError(
                    f"{name.replace('_', '-')}: {describe_amount(name, content)} cannot be kept, "
                    f"it is at least {describe_amount(name, least)}"
                )

    @property
    def any(self) -> bool:
        return self != NO_LIMITS

    def over(self, other: "Limits") -> "Limits":
        """These limits; where one is not set, the other's."""
        return Limits(
            *(
                getattr(other, name) if getattr(self, name) is None else getattr(self, name)
                for name in _FIELDS
            )
        )

    def within(self, other: "Limits") -> "Limits":
        """The stricter of these and the other's, limit by limit."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in _FIELDS)
        return Limits(*(min((one for one in pair if one is not None), default=None) for pair in pairs))


_FIELDS: Final = ("memory", "pids", "cpus", "disk", "open_files", "timeout_s")
NO_LIMITS: Final = Limits()
NAMES: Final = tuple(_LEAST)  # as users write them; the timeout is written with a unit


# --- between a caller and the owner of the command


SHARED: Final = 0  # value of `run`: commands of other owners will join its run


def encode(limits: Limits, run: int | None = None) -> bytes:
    """The limits encoded for an order; empty if there are none.

    `run` is the id of a command whose limits apply to this command too, to both together; or SHARED.
    """
    if not limits.any:
        return b""
    words = ["-" if (one := getattr(limits, name)) is None else repr(one) for name in _FIELDS]
    return " ".join([*words, *([] if run is None else [str(run)])]).encode()


def decode(data: bytes) -> tuple[Limits, int | None]:
    """Decode the limits and the run. Raises ValueError if these bytes are no limits."""
    if not data:
        return NO_LIMITS, None
    words = data.decode("ascii").split(" ")
    kinds = (int, int, float, int, int, float)
    run = int(words.pop()) if len(words) > len(kinds) else None
    found = (None if word == "-" else kind(word) for kind, word in zip(kinds, words, strict=True))
    return Limits(*found), run


def encode_means(means: Mapping[str, Means]) -> str:
    """The word of an event that says how each limit is enforced."""
    return _WORD + "".join(_LETTERS[name] + held.value for name, held in means.items()) if means else ""


def decode_means(word: str) -> dict[str, Means]:
    names = {letter: name for name, letter in _LETTERS.items()}
    pairs = word.removeprefix(_WORD)
    return {names[letter]: Means(held) for letter, held in zip(pairs[::2], pairs[1::2], strict=True)}


def tell_means(
    means: Mapping[str, Means], *, writable: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Describe how limits are enforced and what is weaker; `writable`: the command may write kernel files."""
    held = tuple(f"{name.replace('_', '-')}: {_MEANS[how]}" for name, how in means.items())
    weaker = [_WEAKER[pair] for pair in means.items() if pair in _WEAKER]
    if writable and {Means.V1, Means.V2} & set(means.values()):
        weaker.append("limits: a command that may write everywhere may lift its own")
    return held, tuple(weaker)


# --- what was used, and what was too much


@value
class LimitUsage:
    """The resource use of a command; peaks are over its whole life. None means not counted."""

    memory: int = 0
    memory_peak: int = 0
    oom_kills: int = 0  # processes in here that the kernel killed for lack of memory
    pids: int = 0
    pids_peak: int = 0
    forks_refused: int | None = None
    disk: int = 0


def add_usage(used: LimitUsage, others: Iterable[LimitUsage]) -> LimitUsage:
    """Add the sampled use of others of the same run; the kernel's own counts already cover all of them."""
    for other in others:
        used = LimitUsage(
            used.memory + other.memory,
            used.memory_peak,
            used.oom_kills,
            used.pids + other.pids,
            used.pids_peak,
            used.forks_refused,
            used.disk + other.disk,
        )
    return used


@value
class Reached:
    """A limit that was reached. `killed`: the command was ended for it."""

    what: str
    limit: float
    peak: float
    killed: bool
    count: int = 0

    @property
    def message(self) -> str:
        """The text for users."""
        limit, peak = (
            describe_amount(self.what, self.limit),
            describe_amount(self.what, self.peak, exact=True),
        )
        begin = "killed: " if self.killed else ""
        match self.what:
            case "memory":
                more = "" if self.killed else f": the kernel ended {self.count} of its processes"
                return f"{begin}memory limit {limit} reached{more} (peak {peak})"
            case "pids":
                refused = {0: "", 1: " once"}.get(self.count, f" {self.count} times")
                more = f" ({peak} seen)" if self.killed else f": further ones were refused{refused}"
                return f"{begin}process limit of {limit} reached{more}"
            case "disk":
                return f"{begin}disk limit {limit} reached ({peak} written)"
            case "masks":
                return (
                    f"{begin}a denied or protected path was replaced meanwhile and could not be covered again"
                )
        return f"{begin}time limit of {limit} reached"


UNCOVERED: Final = Reached("masks", 0, 0, killed=True)  # no limit, but the owner ended the command too


def encode_reached(reached: Reached) -> str:
    """Encode for an event: short, in plain characters."""
    return f"{reached.what} {reached.limit:.16g} {reached.peak:.16g} {int(reached.killed)} {reached.count}"


def decode_reached(text: str) -> Reached | None:
    if not text:
        return None
    what, limit, peak, killed, count = text.split(" ")
    return Reached(what, float(limit), float(peak), killed == "1", int(count))


def find_breach(limits: Limits, used: LimitUsage, *, elapsed_s: float) -> Reached | None:
    """The limit for which a running command must be ended now."""
    if limits.timeout_s is not None and elapsed_s >= limits.timeout_s:
        return Reached("timeout", limits.timeout_s, elapsed_s, killed=True)
    if limits.memory is not None and (used.oom_kills or used.memory > limits.memory):
        peak = max(used.memory_peak, used.memory)
        return Reached("memory", limits.memory, peak, killed=True, count=used.oom_kills)
    if limits.pids is not None and used.pids > limits.pids:
        return Reached("pids", limits.pids, used.pids, killed=True)
    if limits.disk is not None and used.disk > limits.disk:
        return Reached("disk", limits.disk, used.disk, killed=True)
    return None


def judge_end(limits: Limits, used: LimitUsage, *, code: int) -> Reached | None:
    """The limit that a command which ended by itself had reached."""
    if limits.memory is not None and used.oom_kills:
        return Reached("memory", limits.memory, used.memory_peak, code == KILLED, used.oom_kills)
    if limits.disk is not None and code == _FILE_TOO_LARGE:
        return Reached("disk", limits.disk, max(used.disk, limits.disk), killed=True)
    if limits.pids is None:
        return None
    full = used.pids_peak >= limits.pids if used.forks_refused is None else used.forks_refused > 0
    return Reached("pids", limits.pids, used.pids_peak, False, used.forks_refused or 0) if full else None


class ReachedLimit(Protocol):
    """A limit that was reached, here or as reported by another machine."""

    @property
    def what(self) -> str: ...
    @property
    def killed(self) -> bool: ...


def exit_code(reached: ReachedLimit | None, code: int) -> int:
    """The exit code of `exec`."""
    if reached is None or not reached.killed:
        return code
    return TIMED_OUT if reached.what == "timeout" else KILLED


def look_again_s(limits: Limits, used: LimitUsage, sampled: frozenset[str], *, elapsed_s: float) -> float:
    """Seconds until the next check; `sampled` are the limits that only sampling enforces."""
    waits = [LATEST_S if sampled else HELD_S]
    if "memory" in sampled and limits.memory is not None:
        waits.append((limits.memory - used.memory) / _FILLS_PER_S)
    if "disk" in sampled and limits.disk is not None:
        waits.append((limits.disk - used.disk) / _FILLS_PER_S)
    if "pids" in sampled and limits.pids is not None:
        waits.append((limits.pids - used.pids) / _FORKS_PER_S)
    soon = max(SOONEST_S, min(waits))
    if limits.timeout_s is not None:
        soon = min(soon, max(0.0, limits.timeout_s - elapsed_s)) if elapsed_s < limits.timeout_s else soon
    return soon


def describe_amount(name: str, content: float, *, exact: bool = False) -> str:
    if name in ("memory", "disk"):
        for unit in ("T", "G", "M", "K"):
            if content >= UNITS[unit]:
                number = content / UNITS[unit]
                return f"{number:.1f} {unit}iB" if exact else f"{number:.3g} {unit}iB"
        return f"{content:.0f} bytes"
    if name == "timeout":
        if content >= 60 and content % 60 == 0:
            return f"{content / 60:g} min"
        return f"{content:.3g} s"
    return f"{content:g}"
