"""The claims of a boot assertion, and how they are judged by answers from inside and outside. Pure module.

A failure alone does not show a denial: the attempt must have worked outside, or failed there for another
reason.
"""

import enum
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import UsageError

SCHEMA_VERSION: Final = 1
MAX_PATHS: Final = 64  # claims about files; each is tried both inside and outside
MAX_URLS: Final = 8  # each may take its whole time limit, and a start script waits for all
_SCHEMES: Final = ("http", "https", "tcp")
DEFAULT_STATUS: Final = "2xx"  # a service that answers with an error is reachable but does not work
_STATUS: Final = re.compile(r"[1-5](?:\d\d|xx)|any")
_ANSWERED: Final = re.compile(r"status (\d{3})\b")


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class ClaimVerdict(enum.StrEnum):
    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNKNOWN = "unknown"


EXIT: Final = {ClaimVerdict.PASS: 0, ClaimVerdict.FAIL: 1, ClaimVerdict.UNKNOWN: 2}


class ClaimKind(enum.StrEnum):
    RUNS = "runs a command"
    CONFIG = "reads its configuration without complaint"
    HOME = "keeps its state in"
    REPOSITORY = "cannot be loosened by the repository in"
    WRITES = "writes"
    REACHES = "reaches"


class Role(enum.StrEnum):
    """A path or address that the assertion itself provides."""

    CWD = "cwd"
    OUTSIDE = "outside"
    CONFIG = "config"
    LOOPBACK = "loopback"


# What must and what must not be possible, by mode.
EXPECTATIONS: Final[Mapping[str, Mapping[Role, bool]]] = {
    "confined": {Role.OUTSIDE: False, Role.CONFIG: False},
    "read-only": {Role.CWD: False, Role.OUTSIDE: False, Role.CONFIG: False, Role.LOOPBACK: False},
    "workspace-write": {Role.CWD: True, Role.OUTSIDE: False, Role.CONFIG: False, Role.LOOPBACK: False},
    "network": {Role.CWD: True, Role.OUTSIDE: False, Role.CONFIG: False, Role.LOOPBACK: True},
    "full-access": {Role.CWD: True, Role.OUTSIDE: True, Role.LOOPBACK: True},
}


@dataclass(frozen=True, slots=True)
class BootClaim:
    """A claim.

    `subject` is a path or an address; with `dry` the subject must not be changed even for a moment.

    A wanted HTTP address must answer with one of `statuses`: 204, 2xx, or any.
    """

    kind: ClaimKind
    wanted: bool
    subject: str = ""
    role: Role | None = None
    dry: bool = False
    statuses: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = hide_query(self.subject) if self.kind is ClaimKind.REACHES else self.subject
        note = f" ({_ROLES[self.role]})" if self.role else ""
        return f"{self.kind} {shown}{note}".rstrip()


_ROLES: Final = {
    Role.CWD: "where it works",
    Role.OUTSIDE: "outside of everything",
    Role.CONFIG: "its own configuration",
    Role.LOOPBACK: "a listener of ours on this machine",
}


_OWN_ERRORS: Final = {ClaimKind.WRITES: ("EROFS",), ClaimKind.REACHES: ("EPERM", "EACCES")}


@dataclass(frozen=True, slots=True)
class ClaimAttempt:
    """The result of an attempt; `lasting`: whether it was visible outside, None if that is unknown."""

    ok: bool
    error: str = ""
    said: str = ""
    lasting: bool | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its proof."""

    claim: str
    route: str
    wanted: Word
    got: Word
    evidence: str
    remedy: str | None = None

    @property
    def holds(self) -> bool:
        return self.got is self.wanted

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self) | {"remedy": None if self.holds else self.remedy}


def hide_query(url: str) -> str:
    """Remove the parts that may be a secret: a query, a fragment."""
    return url.partition("?")[0].partition("#")[0]


def parse_claims(
    *,
    write: Sequence[str] = (),
    deny_write: Sequence[str] = (),
    network: Sequence[str] = (),
    deny_network: Sequence[str] = (),
    statuses: Sequence[str] = (),
) -> tuple[BootClaim, ...]:
    """The claims of a command line; paths are absolute.

    Raises:
        UsageError: an address cannot be tried, claims contradict each other, there are too many, or a status
            is invalid.
    """
    for status in statuses:
        if _STATUS.fullmatch(status) is None:
            raise UsageError(f"--status {status}: not an HTTP status", remedy="give 204, 2xx or any")
    if statuses and not any(urlsplit(url).scheme in _SCHEMES[:2] for url in network):
        raise UsageError("--status says what an http(s) address of --network answers with, and there is none")
    for url in (*network, *deny_network):
        _check_url(url)
    found = [
        *(BootClaim(ClaimKind.WRITES, True, path) for path in write),
        *(BootClaim(ClaimKind.WRITES, False, path) for path in deny_write),
        *(BootClaim(ClaimKind.REACHES, True, url, statuses=_demanded(url, statuses)) for url in network),
        *(BootClaim(ClaimKind.REACHES, False, url) for url in deny_network),
    ]
    for kind, option, most in (
        (ClaimKind.WRITES, "write", MAX_PATHS),
        (ClaimKind.REACHES, "network", MAX_URLS),
    ):
        subjects = [claim.subject for claim in found if claim.kind is kind]
        if len(subjects) > most:
            raise UsageError(f"more than {most} of --{option} and --deny-{option}")
        if both := sorted({one for one in subjects if subjects.count(one) > 1}):
            raise UsageError(f"{hide_query(both[0])} is named twice by --{option} and --deny-{option}")
    return tuple(found)


def _demanded(url: str, statuses: Sequence[str]) -> tuple[str, ...]:
    return () if url.startswith("tcp:") else tuple(statuses) or (DEFAULT_STATUS,)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.username or parts.password:
        raise UsageError(
            "an address with a password in it would be seen by everybody",
            remedy="leave the name and the password out: any answer shows that it is reached",
        )
    if parts.scheme not in _SCHEMES or not host or (parts.scheme == "tcp" and port is None):
        raise UsageError(
            f"{hide_query(url)}: not an address that can be tried",
            remedy="give https://HOST/, http://HOST:PORT/ or tcp://HOST:PORT",
        )


def parse(output: str, mark: str, *, writes: int, reaches: int) -> "Answers | None":
    """The answer of the program inside: its last line that begins with `mark`; None if there is none."""
    line = next((one for one in reversed(output.splitlines()) if one.startswith(mark)), None)
    if line is None:
        return None
    try:
        tree = json.loads(line.removeprefix(mark))
        found = Answers(
            tuple(ClaimAttempt(bool(ok), str(error), str(said)) for ok, error, said in tree["writes"]),
            tuple(ClaimAttempt(bool(ok), str(error), str(said)) for ok, error, said in tree["reaches"]),
            {str(name): value for name, value in tree["facts"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if (len(found.writes), len(found.reaches)) == (writes, reaches) else None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers, in the order of the questions."""

    writes: tuple[ClaimAttempt, ...]
    reaches: tuple[ClaimAttempt, ...]
    facts: Mapping[str, object]


def judge(
    claim: BootClaim, route: str, inside: ClaimAttempt | None, plain: ClaimAttempt, *, remedy: str | None
) -> Judged:
    """Judge an attempt inside, given the same attempt outside."""
    got, evidence = _judge_attempt(claim, inside, plain)
    return Judged(str(claim), route, _word(claim.wanted), got, evidence, None if inside is None else remedy)


def _word(value: bool) -> Word:
    return Word.YES if value else Word.NO


def _judge_attempt(claim: BootClaim, inside: ClaimAttempt | None, plain: ClaimAttempt) -> tuple[Word, str]:
    if inside is None:
        return Word.UNKNOWN, "nothing was answered from inside"
    outside = "it works outside" if plain.ok else f"outside: {_describe(plain)}"
    if inside.ok and (wrong := _wrong_status(claim, inside)) is not None:
        return Word.NO, f"{wrong}; {outside if not plain.ok else f'outside: {_describe(plain)}'}"
    if inside.ok and inside.lasting is not False:
        return Word.YES, _describe(inside) or "done"
    if inside.ok:
        return Word.NO, f"it worked, but in a place of its own: nothing is there outside; {outside}"
    if not claim.wanted and not plain.ok and not _is_sandbox_error(claim.kind, inside.error, plain.error):
        return (
            Word.UNKNOWN,
            f"{_describe(inside)}; {outside}: without a sandbox it fails as well, which shows nothing",
        )
    return Word.NO, f"{_describe(inside)}; {outside}"


def _wrong_status(claim: BootClaim, tried: ClaimAttempt) -> str | None:
    """The received and the wanted status, in words; None if they agree, or none is demanded."""
    answer = _ANSWERED.match(tried.said)
    if not claim.statuses or answer is None:
        return None
    if any(demand in ("any", answer[1], f"{answer[1][0]}xx") for demand in claim.statuses):
        return None
    return f"it answers with {answer[0]}, wanted {' or '.join(claim.statuses)}"


def answers_wrongly(claim: BootClaim, plain: ClaimAttempt) -> bool:
    """Whether it is reached outside, too, with a status that is not wanted."""
    return plain.ok and _wrong_status(claim, plain) is not None


def _is_sandbox_error(kind: ClaimKind, inside: str, outside: str) -> bool:
    """Whether this error is typical of a sandbox and differs from the one outside."""
    return inside != outside and inside in _OWN_ERRORS[kind]


def _describe(tried: ClaimAttempt) -> str:
    return " ".join(f"{tried.error} {tried.said}".split())


def verdict(judged: Iterable[Judged]) -> ClaimVerdict:
    """FAIL if a claim is refuted; UNKNOWN if one is undecided, or there is none at all."""
    found = list(judged)
    if any(not one.holds and one.got is not Word.UNKNOWN for one in found):
        return ClaimVerdict.FAIL
    return ClaimVerdict.PASS if found and all(one.holds for one in found) else ClaimVerdict.UNKNOWN


def plan_pauses(seconds: float) -> Iterable[float]:
    """The pauses before each new try: increasing, and in total not longer than this."""
    pause = 0.5
    while seconds > 0:
        yield min(pause, seconds)
        seconds -= pause
        pause = min(2 * pause, 10.0)
