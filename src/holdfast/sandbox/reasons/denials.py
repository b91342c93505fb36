"""From exit code, output and policy: what the sandbox refused, and which grant allows it. Pure module.

There are two answers. `looks_denied` is the reference's guess from keywords, kept for the wire. `classify`
is our own: it reads the names in the output, and asks the policy whether they are really denied. What the
policy allows is not a denial, whatever the text says. A refusal that names nothing gets low confidence.
"""

import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from holdfast.errors import UsageError
from holdfast.sandbox.policy import sockets
from holdfast.sandbox.policy.credentials import is_credential
from holdfast.sandbox.policy.paths import absolute, grantable, name, parent
from holdfast.sandbox.policy.policy import Access, PathDecision
from holdfast.sandbox.reasons.fingerprint_table import Layer
from holdfast.sandbox.reasons.fingerprints import Match, by_errno, match

MAX_EVIDENCE = 512  # characters of a line quoted in a denial, as the reference does

KEYWORDS: Final = (
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
)
# The reference refuses to make a socket (EPERM). We allow the socket, and it has no way out.
NETWORK_OFF_KEYWORDS: Final = (
    "network is unreachable",
    "enetunreach",
    "cannot assign requested address",
    "can't assign requested address",
    "eaddrnotavail",
)
BY_NAME: Final = "the network is off but for hosts that are allowed by name"
_NAME: Final = re.compile(r"(?=.{1,253}$)[\w-]+(?:\.[\w-]+)*\.[a-z][\w-]*", re.ASCII | re.IGNORECASE)
SIGSYS_EXIT: Final = 128 + 31
NOT_EXECUTABLE: Final = 126

UNCHECKED = 0.7  # a path is named, but there is no policy to check it with
UNNAMED = 0.4  # a keyword, and nothing to check it with
GUESSED = 0.9  # the path was found elsewhere in the output
AMBIGUOUS = 0.5  # the words fit a refused write and an ordinary lack of permission
OWN_LOOPBACK = 0.4  # a service of the host's loopback, or one that is just not running
NESTED = 0.7  # a sandbox inside ours could not be built

# With these a refused write appears as EROFS; EACCES and EPERM mean a denied path or an ordinary failure.
VIEWS: Final = frozenset({"namespaces", "bwrap"})
_WRITES: Final = frozenset(
    {"fs.erofs", "fs.ebusy", "fs.exdev", "fs.mkdir", "tmp", "sqlite.readonly", "sqlite.cantopen"}
)
_NOT_EXECUTED: Final = frozenset({"fs.hidden", "fs.eacces"})
_TELLING: Final = frozenset({"fs.erofs", "fs.eacces", "tmp", "sqlite.readonly", "sqlite.cantopen"})

_WRITING: Final = re.compile(
    r"\b(?:touch|mkdir|rmdir|unlink|rename|symlink|link|copyfile|chmod|chown|utimes?|f?truncate|mkstemp"
    r"|creat\w*|remov\w*|mov(?:e|ing)|delet\w*|overwrit\w*|writ\w*|sav(?:e|ing)|lock\w*|chang\w*|temporary|output"
    r"|berührt|entfern\w*|angelegt|erstell\w*|schreib\w*|verschieb\w*|zugriffsrechte|eigentümer"
    r"|supprimer|créer|déplacer|écriture|modification|borrar|crear|mover|escritura|cambiando)\b",
    re.IGNORECASE,
)
_READING: Final = re.compile(
    r"^(?:cat|diff|du|file|find|grep|head|less|ls|md5sum|more|od|sha\d+sum|sort|stat|tail|wc|xxd): "
    r"|: cd: |\b(?:scandir|opendir|readlink|readdirent|fork/exec|for reading)\b"
    r"|\bcannot (?:open directory|access|stat)\b",
    re.IGNORECASE,
)
# These change the directory, and so need write access to it: a path granted on its own is a mount point.
_CREATING: Final = re.compile(
    r"\b(?:creat\w*|mkdir|mktemp|mkstemp|touch|symlink|link|\w*lock|temporary|angelegt|erstell\w*|créer|crear)\b",
    re.IGNORECASE,
)
_REMOVING: Final = re.compile(
    r"\b(?:remov\w*|delet\w*|unlink\w*|rmdir|rename|mov(?:e|ing)|entfern\w*|verschieb\w*|supprimer|déplacer|borrar"
    r"|mover)\b",
    re.IGNORECASE,
)
_FOLDER: Final = re.compile(r"\bmkdir\b|directory|verzeichnis|dossier|directorio", re.IGNORECASE)
_DATABASE: Final = re.compile(r"(?<![\w/.~-])((?:\.{0,2}/)?[\w./@+-]{1,400}\.(?:db3?|sqlite3?))(?![\w/.])")
_LOOPBACK: Final = re.compile(r"localhost|127\.[\d.]{5,11}|::1|0\.0\.0\.0", re.IGNORECASE)

_SPECIAL_SOCKETS: Final = "of unix sockets only streams are allowed, and no special families"

Explain = Callable[[str, Access], PathDecision]
Hidden = Callable[[str], tuple[str, PathDecision] | None]  # an unreadable file that a program needs
DenialKind = Literal["filesystem", "network", "syscall", "setup"]


@dataclass(frozen=True, slots=True)
class DenialEvidence:
    """What is known about a run that has ended."""

    exit_code: int
    output_tail: str
    explain: Explain | None
    network_off: bool
    cwd: str
    setup: tuple[str, int] | None = None  # stage and errno, if the command never started
    backend: str | None = None
    fixed: Collection[str] = ()  # mount points and pins: cannot be renamed or removed, even if writable
    exists: Callable[[str], bool] | None = None  # a missing path cannot be granted, only its directory
    closed: Collection[str] = ()  # writable directories in which the backend cannot allow changes of entries
    unlisted: Collection[str] = ()  # readable directories that the backend cannot allow to be listed
    home: str = ""  # the user's home directory: no advice grants all of it for the sake of one file
    hidden: Hidden = lambda _: None
    by_name: bool = False  # some hosts are reached by name, although the network is off


@dataclass(frozen=True, slots=True)
class Denial:
    """What the sandbox refused. `grant` is the smallest flag that allows it; None if no flag does.

    A `witnessed` denial is certain to have happened; any other is what the output claims.
    """

    kind: DenialKind
    path: str | None
    host: str | None
    access: Literal["read", "write"] | None
    rule: str | None
    grant: str | None
    confidence: float
    evidence: str
    witnessed: bool = False


def looks_denied(exit_code: int, output: bytes | str, *, sandboxed: bool, network_off: bool = False) -> bool:
    """`sandboxDenied` of the protocol: a keyword in the output, or death by SIGSYS on Linux."""
    if not sandboxed or exit_code == 0:
        return False
    text = output if isinstance(output, str) else output.decode("utf-8", "replace")
    lowered = text.lower()
    keywords = (*KEYWORDS, *NETWORK_OFF_KEYWORDS) if network_off else KEYWORDS
    if any(keyword in lowered for keyword in keywords):
        return True
    return sys.platform == "linux" and exit_code == SIGSYS_EXIT


def classify(evidence: DenialEvidence) -> Denial | None:
    """The most credible denial; the last one of equals. None if nothing points at the sandbox."""
    if evidence.setup is not None:
        return _setup(*evidence.setup)
    if evidence.exit_code == 0:
        return None
    found = [
        denial for seen in match(evidence.output_tail) if (denial := _denial(seen, evidence)) is not None
    ]
    if found:
        return max(reversed(found), key=lambda denial: denial.confidence)
    if evidence.exit_code == SIGSYS_EXIT:
        return Denial("syscall", None, None, None, "sigsys", None, 0.9, f"exit code {SIGSYS_EXIT}")
    return None


def _setup(stage: str, errno: int) -> Denial:
    fingerprint = by_errno(stage, errno)
    rule, cause = (fingerprint.id, f": {fingerprint.cause}") if fingerprint else (None, "")
    evidence = f"{stage} failed with errno {errno}{cause}"
    return Denial("setup", None, None, None, rule, None, 1.0, evidence, witnessed=True)


def _denial(seen: Match, evidence: DenialEvidence) -> Denial | None:
    match seen.fingerprint.layer:
        case Layer.FILESYSTEM:
            return _filesystem(seen, evidence)
        case Layer.NETWORK if seen.fingerprint.id in ("net.unix", "net.agent"):
            return _unix_socket(seen)
        case Layer.NETWORK | Layer.APP:
            return _network(seen, evidence) if evidence.network_off else None
        case Layer.SYSCALL:
            return _plain("syscall", seen, seen.fingerprint.confidence)
        case Layer.TOOL:
            return None
        case _:
            return _plain("syscall", seen, seen.fingerprint.confidence * NESTED)


def _plain(kind: DenialKind, seen: Match, confidence: float) -> Denial:
    rule = None if kind == "filesystem" else seen.fingerprint.id
    return Denial(kind, None, None, None, rule, None, round(confidence, 2), seen.line[:MAX_EVIDENCE])


def _unix_socket(seen: Match) -> Denial:
    path = seen.paths[0] if seen.paths else None
    grant = sockets.AGENT_GRANT if path is None else sockets.grant_for(path)
    plain = _plain("network", seen, seen.fingerprint.confidence)
    return replace(plain, path=path, rule=sockets.RULE, grant=grant)


def _network(seen: Match, evidence: DenialEvidence) -> Denial | None:
    confidence, host = seen.fingerprint.confidence, seen.host
    at_home = host is None or _LOOPBACK.fullmatch(host) is not None
    if seen.fingerprint.id == "net.refused" and not at_home:
        return None  # a host answered: without a network none could have
    if seen.fingerprint.id == "net.socket" and host is None and evidence.backend in VIEWS:
        return replace(_plain("network", seen, confidence), rule=_SPECIAL_SOCKETS)
    if seen.fingerprint.layer is Layer.APP and at_home:
        confidence *= OWN_LOOPBACK
    plain = replace(_plain("network", seen, confidence), host=host)
    named = None if host is None else _grant_host(host, seen.line)
    if evidence.by_name:
        return replace(plain, rule=BY_NAME, grant=named)
    grant = named if named is not None and evidence.backend in VIEWS else "--network on"
    return replace(plain, rule="the network is off", grant=grant)


def _grant_host(host: str, line: str) -> str | None:
    """The flag for a named host; with --allow-host no other address is reached."""
    if _NAME.fullmatch(host) is None:
        return None
    return f"--allow-host {host}:22" if line.startswith("ssh: ") else f"--allow-host {host}"


def _filesystem(seen: Match, evidence: DenialEvidence) -> Denial | None:
    weight, written = 1.0, seen.paths
    if seen.fingerprint.path is not None:
        written = (seen.fingerprint.path,)
    elif not written and seen.fingerprint.id.startswith("sqlite."):
        weight, written = GUESSED, tuple(_DATABASE.findall(evidence.output_tail)[-1:])
    if not written:
        return _judge_unnamed(seen)
    for path in written:
        denial = _judge(seen, path, evidence)
        if denial is not None:
            return replace(denial, confidence=round(denial.confidence * weight, 2))
    if seen.fingerprint.id in _NOT_EXECUTED and (denial := _judge_program(seen, written[0], evidence)):
        return denial
    if seen.fingerprint.id == "fs.erofs" and not written[0].startswith("/"):
        return _judge_unnamed(seen)  # relative to a directory that the command changed to
    return None


def _judge_program(seen: Match, written: str, evidence: DenialEvidence) -> Denial | None:
    """The denial of a file that an executed program needs, if the program itself may be read."""
    found = evidence.hidden(written)
    if found is None:
        return None
    path, decision = found
    plain = _plain("filesystem", seen, seen.fingerprint.confidence)
    return replace(plain, path=path, access="read", rule=decision.why, grant=decision.grant)


def _judge_unnamed(seen: Match) -> Denial | None:
    if seen.fingerprint.id not in _TELLING or seen.line.startswith("remote: "):
        return None
    return _plain("filesystem", seen, seen.fingerprint.confidence * UNNAMED)


def _judge(seen: Match, written: str, evidence: DenialEvidence) -> Denial | None:
    """Ask the policy about one path; return None if it allows what was tried."""
    try:
        path = absolute(written, evidence.cwd)
    except UsageError:
        return None
    plain = replace(_plain("filesystem", seen, seen.fingerprint.confidence), path=path)
    tried = _guess_access(seen)
    if evidence.explain is None:
        if seen.fingerprint.id not in _TELLING:
            return None
        return replace(plain, access=_name_access(tried), confidence=plain.confidence * UNCHECKED)
    if seen.fingerprint.id == "fs.ebusy" and path in evidence.fixed:
        return replace(plain, access="write", rule=f"{path} is held in place by the sandbox")
    verdict = _verdict(seen, path, tried, evidence, evidence.explain)
    if verdict is None:
        return _short(seen, path, tried, evidence, plain)
    access, decision, weight = verdict
    return replace(
        plain,
        access=_name_access(access),
        rule=decision.why,
        grant=_grant(seen, path, access, decision, evidence, evidence.explain),
        confidence=plain.confidence * weight,
    )


def _verdict(
    seen: Match, path: str, tried: Access | None, evidence: DenialEvidence, explain: Explain
) -> tuple[Access, PathDecision, float] | None:
    read, write = explain(path, Access.READ), explain(path, Access.WRITE)
    above = explain(parent(path), Access.WRITE)
    if seen.fingerprint.id == "fs.hidden":
        return None if read.allowed else (Access.READ, read, 1.0)
    if seen.fingerprint.id == "fs.shape":
        # Only a name masked inside a writable directory looks like this because of us.
        if not read.allowed and tried is Access.READ:
            return Access.READ, read, 1.0
        masked = not write.allowed and (above.allowed or not read.allowed)
        return (Access.WRITE, write, 1.0) if masked else None
    if seen.fingerprint.id.startswith("sqlite."):
        decision = write if not write.allowed else above
        return None if decision.allowed else (Access.WRITE, decision, 1.0)
    if not read.allowed and tried is not Access.WRITE:
        return Access.READ, read, 1.0
    if write.allowed or tried is Access.READ:
        return None
    if seen.fingerprint.id in _WRITES or seen.fingerprint.path is not None or not read.allowed:
        return Access.WRITE, write, 1.0
    if tried is None and (evidence.backend in VIEWS or evidence.exit_code == NOT_EXECUTABLE):
        return None
    certain = tried is Access.WRITE and evidence.backend not in VIEWS
    return Access.WRITE, write, 1.0 if certain else AMBIGUOUS


def _short(
    seen: Match, path: str, tried: Access | None, evidence: DenialEvidence, plain: Denial
) -> Denial | None:
    """A denial of what the policy allows and the backend cannot do."""
    if path in evidence.unlisted and tried is not Access.WRITE:
        rule = f"{path} cannot be listed without the names of what is hidden below it; --degraded shows them"
        return replace(plain, access="read", rule=rule)
    folder = parent(path)
    there = evidence.exists is not None and evidence.exists(path)
    if (
        folder not in evidence.closed
        or tried is Access.READ
        or (there and not _REMOVING.search(_words(seen)))
    ):
        return None
    rule = f"entries of {folder} cannot change while something in it is protected; --degraded gives that up"
    return replace(plain, access="write", rule=rule)


def _guess_access(seen: Match) -> Access | None:
    """The access that the words say was tried; None if they fit both."""
    if seen.fingerprint.id in _WRITES or seen.fingerprint.path is not None:
        return Access.WRITE
    words = _words(seen)
    if _READING.search(words):
        return Access.READ
    return Access.WRITE if _WRITING.search(words) else None


def _words(seen: Match) -> str:
    """The line without the names in it, which could contain such words too."""
    words = seen.line
    for path in seen.paths:
        words = words.replace(path, " ")
    return words


def _grant(
    seen: Match, path: str, access: Access, decision: PathDecision, evidence: DenialEvidence, explain: Explain
) -> str | None:
    """The policy's flag for the path; for its directory if something must be created there."""
    if access is Access.READ or seen.fingerprint.path is not None or is_credential(path):
        return decision.grant
    words, needed = _words(seen), path
    changed = seen.fingerprint.id.startswith(("sqlite.", "fs.exdev")) or _REMOVING.search(words)
    if changed or (evidence.exists is None and _CREATING.search(words)):
        needed = parent(path)
    if evidence.exists is not None:
        folder = name(needed).startswith(".") and _FOLDER.search(words) is not None
        needed = grantable(needed, evidence.exists, folder=folder, home=evidence.home)
    if needed in (path, "/"):
        return decision.grant
    directory = explain(needed, Access.WRITE)
    return decision.grant if directory.allowed else directory.grant


def _name_access(access: Access | None) -> Literal["read", "write"] | None:
    if access is None:
        return None
    return "read" if access is Access.READ else "write"
