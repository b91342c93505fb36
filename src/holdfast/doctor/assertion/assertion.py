"""The boot assertion: does this agent run commands here, and is what must be denied really denied?

Nothing is inferred: a program runs inside, the way the agent would run it, and reports what it could access.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.agentconfig import clients, host
from holdfast.agentconfig.decision import AgentName
from holdfast.agentconfig.settings import Key
from holdfast.doctor.assertion import claims, probe, routes, witness
from holdfast.doctor.assertion.claims import (
    EXPECTATIONS,
    BootClaim,
    ClaimAttempt,
    ClaimKind,
    ClaimVerdict,
    Judged,
    Role,
    Word,
)
from holdfast.doctor.assertion.routes import CodexLaunch, RouteRun
from holdfast.doctor.explain import explanation
from holdfast.errors import NotFound, UsageError
from holdfast.local.atomicfile import replace_file
from holdfast.sandbox.reasons import fingerprints

MAX_EVIDENCE: Final = 600  # characters; a line of an error, not a whole log

# Warnings of Codex that are not about its configuration: running a command shows whether they matter.
_OTHER_WARNINGS: Final = (
    "could not find bubblewrap on PATH",
    "needs access to create user namespaces",
    "To load project-local config",
)
_PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "confined": (),
    "read-only": ("--read-only",),
    "workspace-write": ("--workspace-write",),
    "network": ("--workspace-write", "--network", "on"),
    "full-access": ("--full-access",),
}
MAX_PROOFS: Final = 64  # the newest; a machine has a few homes and workspaces
MAX_BYTES: Final = 64 * 1024  # of the file; a larger one is not ours
NAME: Final = "assertions.json"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class AssertOrder:
    """What to assert about which agent. Paths are absolute; without a binary it is about our own sandbox."""

    cwd: Path
    home: Path
    binary: Path | None = None
    asked: tuple[BootClaim, ...] = ()
    expect: str = "confined"
    overrides: tuple[str, ...] = ()
    profile: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class AssertionStep:
    """One route, taken or not."""

    route: str
    status: str  # "ran", "failed", "unknown" or "skipped"
    note: str = ""
    seconds: float = 0.0
    exit_code: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    enforcement: Mapping[str, object] | None = None  # what confined it, if reported

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "route": self.route,
            "status": self.status,
            "note": self.note,
            "seconds": round(self.seconds, 3),
            "exitCode": self.exit_code,
            "facts": dict(self.facts),
            "enforcement": self.enforcement,
        }


@dataclass(frozen=True, slots=True)
class AssertionReport:
    """The verdict with its evidence."""

    agent: str
    binary: str | None
    version: str | None
    steps: tuple[AssertionStep, ...]
    judged: tuple[Judged, ...]
    causes: tuple[Mapping[str, object], ...] = ()  # as `holdfast doctor explain` reports them

    @property
    def verdict(self) -> ClaimVerdict:
        return claims.verdict(self.judged)

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "schemaVersion": claims.SCHEMA_VERSION,
            "verdict": self.verdict.value,
            "agent": self.agent,
            "binary": self.binary,
            "version": self.version,
            "runs": [step.report() for step in self.steps],
            "claims": [one.report() for one in self.judged],
            "fingerprints": [dict(cause) for cause in self.causes],
        }


def find(agent: str | None, named: Path | None) -> Path | None:
    """The agent's program; None for our own sandbox, which is used if no agent is named and none is found.

    Raises:
        NotFound: Codex was requested and is not installed.
    """
    if named is not None:
        if not os.access(named, os.X_OK):
            raise NotFound(f"{named} is not a program", remedy="give --codex the path of codex")
        return named.absolute()
    if agent == "holdfast":
        return None
    try:
        return clients.find(AgentName.CODEX).absolute()
    except NotFound:
        if agent is not None:
            raise
        return None


def run(order: AssertOrder, environ: Mapping[str, str] = os.environ) -> AssertionReport:
    """Assert once.

    Raises:
        HoldfastError: there is nothing to assert it with.
    """
    if not order.cwd.is_dir():
        raise UsageError(f"{order.cwd} is not a directory", remedy=f"mkdir -p {order.cwd}")
    needed = Role.LOOPBACK in EXPECTATIONS[order.expect]
    with witness.workplace(order.cwd, environ) as place, witness.listening(needed=needed) as listener:
        claimed = tuple(_claims(order, witness.outside(place), listener))
        if order.binary is None:
            return _ours(_Inquiry(order, claimed, listener, environ))
        home = _home(order.home)
        if home.holds:
            return _codex(_Inquiry(order, claimed, listener, environ), order.binary, home, place)
        skipped = [
            AssertionStep(route, "skipped", home.evidence) for route in (routes.COMMAND_EXEC, routes.EXEC)
        ]
        causes = _explain(home.evidence)
        return AssertionReport(
            "codex", str(order.binary), _version(order.binary), tuple(skipped), (home,), causes
        )


def wait(
    order: AssertOrder, seconds: float, tell: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> AssertionReport:
    """Assert until it passes or the time is over; the last try may end after that."""
    until = time.monotonic() + seconds
    found = run(order, environ)
    for pause in claims.plan_pauses(seconds):
        left = until - time.monotonic()
        if found.verdict is ClaimVerdict.PASS or left <= 0:
            break
        first = next(one for one in found.judged if not one.holds)
        tell(f"not yet: {first.claim}: {first.got}, wanted {first.wanted}; {left:.0f} s left")
        time.sleep(min(pause, left))
        found = run(order, environ)
    return found


def _claims(order: AssertOrder, canary: Path, listener: witness.LoopListener) -> Iterator[BootClaim]:
    config = order.home / "config.toml"
    subjects = {
        Role.CWD: str(order.cwd),
        Role.OUTSIDE: str(canary),
        Role.CONFIG: str(config if config.exists() else order.home),
        Role.LOOPBACK: listener.url,
    }
    named = {claim.subject for claim in order.asked}
    for role, wanted in EXPECTATIONS[order.expect].items():
        kind = ClaimKind.REACHES if role is Role.LOOPBACK else ClaimKind.WRITES
        if subjects[role] not in named and not (role is Role.CONFIG and order.binary is None):
            yield BootClaim(kind, wanted, subjects[role], role, dry=role is Role.CONFIG)
    yield from order.asked


class _Inquiry:
    """Puts the claims to one route after the other.

    `said` are the error messages of the routes; `known` are the fingerprints reported with them.
    """

    def __init__(
        self,
        order: AssertOrder,
        claimed: Sequence[BootClaim],
        listener: witness.LoopListener,
        environ: Mapping[str, str],
    ) -> None:
        self.order, self.claimed, self.environ = order, claimed, environ
        self.said: list[str] = []
        self.known: list[str] = []
        self._listener = listener
        self._plain = witness.Questions(claimed, listener).outside()

    def take(
        self, route: Callable[[witness.Questions], RouteRun]
    ) -> tuple[RouteRun, AssertionStep, tuple[Judged, ...]]:
        """Take one route; return its run, the step for the report, and the judged claims."""
        questions = witness.Questions(self.claimed, self._listener)
        with questions.cleared():
            ran = route(questions)
            told = questions.answers(ran.output)
        if told is None:
            got, status = (Word.NO, "failed") if ran.ended else (Word.UNKNOWN, "unknown")
            evidence = _short(ran.said) or f"exit code {ran.exit_code}, and not a word"
            answers: Mapping[BootClaim, ClaimAttempt] = {}
            facts: Mapping[str, object] = {}
            self.said.append(ran.said)
            self.known += filter(None, (ran.fingerprint,))
        else:
            got, status, evidence = Word.YES, "ran", "it ran and answered"
            answers, facts = told[0], told[1].facts
        judged = [Judged(str(ClaimKind.RUNS), ran.route, Word.YES, got, evidence, "holdfast doctor")]
        judged += (self._judge(claim, ran.route, answers.get(claim)) for claim in self.claimed)
        self.said += (one.evidence for one in judged[1:] if not one.holds and one.wanted is Word.YES)
        step = AssertionStep(
            ran.route, status, _describe_enforcement(ran), ran.seconds, ran.exit_code, facts, ran.enforcement
        )
        return ran, step, tuple(judged)

    def causes(self, judged: Sequence[Judged]) -> tuple[Mapping[str, object], ...]:
        """The known causes of the collected error messages."""
        if claims.verdict(judged) is ClaimVerdict.PASS:
            return ()
        named = [
            {"fingerprint": one.id, "layer": one.layer.value, "cause": one.cause, "remedy": one.remedy}
            | {"confidence": 1.0, "evidence": [_short(text) for text in self.said]}
            for one in fingerprints.TABLE
            if one.id in self.known
        ]
        return (*named, *_explain("\n".join(dict.fromkeys(self.said))))

    def _judge(self, claim: BootClaim, route: str, inside: ClaimAttempt | None) -> Judged:
        plain = self._plain[claim]
        return claims.judge(claim, route, inside, plain, remedy=_remedy(claim, plain, self.order))


def _explain(text: str) -> tuple[Mapping[str, object], ...]:
    found = explanation.report(explanation.explain(text))["explanations"]
    return tuple(found) if isinstance(found, list) else ()


def _describe_enforcement(ran: RouteRun) -> str:
    """The backend, and the cause why it was not a stronger one."""
    if ran.enforcement is None:
        return ""
    cause = ran.enforcement.get("fingerprint")
    return f"backend {ran.enforcement.get('backend')}{f' [{cause}]' if cause else ''}"


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_EVIDENCE]


# --- our own sandbox


def _ours(inquiry: _Inquiry) -> AssertionReport:
    order = inquiry.order
    flags = list(_PRESETS[order.expect])
    for claim in order.asked:
        if claim.wanted and claim.kind is ClaimKind.WRITES:
            flags += ["--allow-write", claim.subject]
    if "on" not in flags and any(one.wanted for one in order.asked if one.kind is ClaimKind.REACHES):
        flags += ["--network", "on"]
    if order.profile is not None:
        flags = ["--profile", order.profile]
    _, step, judged = inquiry.take(
        lambda questions: routes.holdfast_exec(order.cwd, flags, questions, inquiry.environ)
    )
    return AssertionReport("holdfast", None, __version__, (step,), judged, inquiry.causes(judged))


# --- Codex


def _codex(inquiry: _Inquiry, binary: Path, home: Judged, place: Path) -> AssertionReport:
    order = inquiry.order
    launch = CodexLaunch(binary, order.home, order.cwd, order.overrides)
    steps: tuple[AssertionStep, ...] = ()
    judged: tuple[Judged, ...] = (home,)
    try:
        with routes.copied_home(order.home, place, inquiry.environ) as copy:
            launch = routes.move_state(launch, copy)
            first, step, more = inquiry.take(lambda questions: routes.command_exec(launch, copy, questions))
            inquiry.said += first.warnings
            steps = (step,)
            judged += (_configuration(first, order), *more, *_trust(order, first.effective))
            step, more = _whole_path(inquiry, launch, copy, first.effective, judged)
            steps += (step,)
            judged += more
    except OSError as exc:
        judged += (_unreadable(exc, order),)
    return AssertionReport("codex", str(binary), _version(binary), steps, judged, inquiry.causes(judged))


def _whole_path(
    inquiry: _Inquiry,
    launch: CodexLaunch,
    copy: Path,
    effective: Mapping[Key, object],
    judged: Sequence[Judged],
) -> tuple[AssertionStep, tuple[Judged, ...]]:
    """Run `codex exec`, unless a claim has already failed, or this route was proven earlier on this boot."""
    order, environ = inquiry.order, inquiry.environ
    if claims.verdict(judged) is ClaimVerdict.FAIL:
        return AssertionStep(routes.EXEC, "skipped", "the shorter way has failed already"), ()
    folder = witness.state_folder(environ)
    wanted = [(claim.kind, claim.wanted, "" if claim.role else claim.subject) for claim in inquiry.claimed]
    values = sorted(f"{'.'.join(name)}={value}".replace(str(copy), "") for name, value in effective.items())
    key = proof_key(
        launch.binary, [str(launch.home), str(launch.cwd), order.overrides, order.expect, wanted, values]
    )
    when = None if order.again else proven_since(folder, key)
    if when is not None:
        return AssertionStep(
            routes.EXEC, "skipped", f"proven at {when}, with this program and on this boot"
        ), ()
    _, step, more = inquiry.take(
        lambda questions: routes.codex_exec(launch, copy, questions, effective, environ)
    )
    if claims.verdict((*judged, *more)) is ClaimVerdict.PASS:
        noted = record_proof(folder, key, datetime.now(UTC).isoformat(timespec="seconds"))
        step = replace(step, note="" if noted else f"cannot be noted in {folder}")
    return step, more


def _version(binary: Path) -> str | None:
    version = clients.version(binary)
    return None if version is None else ".".join(map(str, version))


def _home(home: Path) -> Judged:
    """Whether Codex can write its home; otherwise it does not start."""
    remedy = f"make {home} writable for this user"
    if not home.exists():
        evidence, remedy = f"{home} does not exist", f"mkdir -m 700 -p {home}"
    elif not home.is_dir():
        evidence = f"{home} is not a directory"
    else:
        ok, _, evidence = probe.write(str(home), "", "", dry=True)
        if ok:
            return Judged(f"{ClaimKind.HOME} {home}", "", Word.YES, Word.YES, "it can be written")
    return Judged(f"{ClaimKind.HOME} {home}", "", Word.YES, Word.NO, evidence, remedy)


def _configuration(ran: RouteRun, order: AssertOrder) -> Judged:
    complaints = [text for text in ran.warnings if not any(known in text for known in _OTHER_WARNINGS)]
    got = Word.NO if complaints else Word.YES if ran.effective else Word.UNKNOWN
    evidence = _short(" | ".join(complaints)) or ("none" if ran.effective else "it did not answer")
    remedy = f"correct {order.home}/config.toml, then: holdfast config codex check --home {order.home}"
    return Judged(str(ClaimKind.CONFIG), ran.route, Word.YES, got, evidence, remedy)


def _unreadable(exc: OSError, order: AssertOrder) -> Judged:
    return Judged(str(ClaimKind.CONFIG), "", Word.YES, Word.NO, str(exc), f"ls -l {order.home}")


def _trust(order: AssertOrder, effective: Mapping[Key, object]) -> Iterator[Judged]:
    """Whether the repository's configuration can override the user's.

    An app server trusts a repository by itself, and then its configuration is above the user's.
    """
    found = host.find_project(order.cwd)
    own = os.path.realpath(order.home / "config.toml")
    layers = [layer for layer in found.layers if os.path.realpath(layer) != own]
    if not layers or not effective:
        return
    decided = [name for name in found.names if ("projects", name, "trust_level") in effective]
    got = Word.YES if decided or effective.get(("sandbox_mode",)) == "read-only" else Word.NO
    evidence = f"{', '.join(layers)}: " + (
        f"trust is decided for {decided[0]}" if decided else "trust is not decided; a thread will trust it"
    )
    remedy = f"holdfast config codex apply --home {order.home} --cwd {order.cwd}"
    yield Judged(
        f"{ClaimKind.REPOSITORY} {order.cwd}",
        routes.COMMAND_EXEC,
        Word.YES,
        got,
        evidence,
        remedy,
    )


def _remedy(claim: BootClaim, plain: ClaimAttempt, order: AssertOrder) -> str:
    reaches = claim.kind is ClaimKind.REACHES
    if claims.answers_wrongly(claim, plain):
        return "see what is wrong at the other side, or demand what it should answer: --status CODE"
    if not plain.ok and reaches:
        return f"see why this machine itself does not reach {claims.hide_query(claim.subject)}"
    if not plain.ok:
        return f"name a path that you can write yourself; {claim.subject} is not one"
    if order.binary is None:
        return "holdfast exec --print-plan says what is allowed, and --explain PATH by which rule"
    home = f"--home {order.home} --cwd {order.cwd}"
    if not claim.wanted:
        return f"holdfast config codex check {home} says which file decides; apply writes a stricter decision"
    wish = "--network full" if reaches else f"--writable {claim.subject}" if claim.role is None else ""
    return f"holdfast config codex apply {home} {wish}".rstrip()


def proof_key(binary: Path, decision: object) -> str:
    """The key of a proof, so that not every start has to take the slow route.

    It changes with the program, the boot, the user and everything that was decided; only its digest is
    stored.

    Raises:
        OSError: there is no such program.
    """
    found = os.stat(binary)
    boot = ""
    with contextlib.suppress(OSError):
        boot = _BOOT.read_text("ascii").strip()
    parts = [os.path.realpath(binary), found.st_size, found.st_mtime_ns, boot, os.getuid(), decision]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def proven_since(folder: Path, proof_key: str) -> str | None:
    """When this was proven; None if it was not."""
    return _read_proofs(folder).get(proof_key)


def record_proof(folder: Path, proof_key: str, when: str) -> bool:
    """Store a proof atomically; return False if that is not possible."""
    proofs = [(old, then) for old, then in _read_proofs(folder).items() if old != proof_key]
    text = json.dumps({"schemaVersion": 1, "proofs": dict([*proofs, (proof_key, when)][-MAX_PROOFS:])})
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / NAME, text.encode())
    except OSError:
        return False
    return True


def _read_proofs(folder: Path) -> dict[str, str]:
    try:
        with (folder / NAME).open("rb") as file:
            tree = json.loads(file.read(MAX_BYTES))
        return {str(name): str(when) for name, when in tree["proofs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
