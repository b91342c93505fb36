"""A machine that the user reaches by ssh: its address, the command line, and why it failed. Pure module.

The user's own `ssh` is run, with the user's configuration, agent and jumps. It never prompts: a user who has
to type a password or a second factor opens a shared connection first (ControlMaster). On the other machine
`holdfast environment bridge` connects us to a server that stays, so that a session outlives the link.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.errors import Unreachable, UsageError
from holdfast.local.shown import show_text

SCHEME: Final = "ssh://"
INITIALIZE_S: Final = 30.0  # to log in over jumps, and to start a server on the other machine
MAX_SAID_BYTES: Final = 4096  # of ssh's error output
MAX_SHOWN: Final = 60  # characters of a shell's own output
# The PATH of a shell that is no login shell may lack the user's program directories.
SEARCH: Final = 'PATH="$HOME/.local/bin:$HOME/.holdfast/bin:$PATH"'
_WORD: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@%+-]*")  # no option, nothing that a shell interprets
_HOST: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9_.-]+)?")
# A link that is silent for half a minute is dropped, even if the user's configuration does not say so.
_OPTIONS: Final = ("-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")


@dataclass(frozen=True, slots=True)
class SshTarget:
    """`path` is the directory on the other machine, `~/…` one in the home; without one it is the home."""

    host: str
    user: str | None = None
    port: int | None = None
    path: str | None = None

    resumable = True

    def __str__(self) -> str:
        user = "" if self.user is None else f"{self.user}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{SCHEME}{user}{host}{port}"

    def argv(self, *words: str, interactive: bool = False) -> tuple[str, ...]:
        """The command line that runs `holdfast environment bridge` with these words on the other machine."""
        command = ["holdfast", "environment", "bridge", *words, "--", self.path or ""]
        script = f"{SEARCH} exec {shlex.join(command)}"
        return (*self.base(interactive=interactive), shlex.join(["sh", "-c", script]))

    def base(self, *, interactive: bool = False) -> tuple[str, ...]:
        """The ssh command and its host; if interactive it may prompt."""
        options = ("-T",) if interactive else ("-T", *_OPTIONS)
        port = () if self.port is None else ("-p", str(self.port))
        user = () if self.user is None else ("-l", self.user)
        return ("ssh", *options, *port, *user, "--", self.host)

    def shell(self) -> tuple[str, ...]:
        """The command line that feeds its input to `sh` on the other machine, whatever the login shell."""
        return (*self.base(), "sh -s")

    def copy(self, folder: str) -> tuple[str, ...]:
        """The command line that copies a folder of this machine into the home on the other machine."""
        port = () if self.port is None else ("-P", str(self.port))
        user = () if self.user is None else ("-o", f"User={self.user}")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return ("scp", "-q", "-r", *_OPTIONS, *port, *user, "--", folder, f"{host}:")


def parse(address: str) -> SshTarget:
    """Parse ssh://[user@]host[:port][/path].

    Raises:
        UsageError: it is not such an address.
    """
    try:
        parts = urlsplit(address)
        host, user, port = _written_host(parts.netloc), parts.username, parts.port
    except ValueError:
        host, user, port, parts = "", None, None, urlsplit("")
    if any(ord(char) < 0x20 for char in address):  # urlsplit removes some of them
        host = ""
    if not _HOST.fullmatch(host) or (user is not None and not _WORD.fullmatch(user)) or parts.query:
        raise UsageError("this is no address for ssh", remedy="write ssh://[user@]host[:port][/path]")
    if parts.password is not None or parts.fragment:
        raise UsageError("an address must not hold a secret", remedy="let ssh know your key")
    path = unquote(parts.path)
    if any(ord(char) < 0x20 for char in path):
        raise UsageError("the path has characters that no directory should have")
    where = None if path in ("", "/~", "/~/") else path[1:] if path.startswith("/~/") else path
    return SshTarget(host, user, port, where)


def _written_host(place: str) -> str:
    """The host as typed: urlsplit lowers the case, but aliases of ssh may have capitals."""
    host = place.rpartition("@")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


# The first pattern that matches gives the reason. ssh's own words are not repeated: some come from the other
# machine.
_REASONS: Final = (
    (r"Permission denied|Too many authentication failures", "does not let you in", "log in once: {login}"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "has another key than it had", "look into it: {login}"),
    (r"Host key verification failed", "is not known to ssh yet", "log in once and check its key: {login}"),
    (
        r"Could not resolve hostname|Name or service not known",
        "is not a known host name",
        "correct the name: {login}",
    ),
    (r"Connection refused", "has no ssh server there", "start one there, or give its port: {login}"),
    (r"[Tt]imed out|No route to host|Network is unreachable", "cannot be reached", "{login}"),
    (
        r"No such command|no such option|invalid choice",
        "has a Holdfast that is too old",
        "update it from here: {install}",
    ),
    (
        r"holdfast.*not found|not found.*holdfast|No module named .?holdfast",
        "has no Holdfast",
        "install it from here: {install}",
    ),
    (r"subsystem request failed", "takes no files from scp", "let its sshd have sftp: Subsystem sftp"),
)


def explain(target: SshTarget, code: int | None, said: str) -> Unreachable:
    """Explain why there is no link, from ssh's exit code and its error output."""
    login = _login(target)
    install = f"holdfast environment add NAME {target} --install"
    for pattern, words, remedy in _REASONS:
        if re.search(pattern, said):
            return Unreachable(f"{target} {words}", remedy=remedy.format(login=login, install=install))
    own = re.search(r"^holdfast: (.{1,200})$", said, re.MULTILINE)
    if own is not None:
        return Unreachable(f"{target} says: {own[1]}")
    if code == 127:
        return Unreachable(f"{target} has no Holdfast", remedy=f"install it from here: {install}")
    return Unreachable(f"ssh to {target} ended with {code}", remedy=login)


def explain_greeting(target: SshTarget, said: str) -> Unreachable:
    """Explain that a shell on the other machine printed something that is no message of a server."""
    line = next((line for line in show_text(said).splitlines() if line.strip()), "")
    return Unreachable(
        f"{target} prints something before Holdfast does: {line.strip()[:MAX_SHOWN]!r}",
        remedy="let the start files of its shell (~/.bashrc) print on a terminal only; "
        f"this must print nothing: {_login(target)} true",
    )


def explain_silence(target: SshTarget, seconds: float) -> Unreachable:
    return Unreachable(f"{target} did not answer within {seconds:.3g} s", remedy=_login(target))


def _login(target: SshTarget) -> str:
    """The command that a person would type."""
    return shlex.join(word for word in target.base(interactive=True) if word not in ("-T", "--"))
