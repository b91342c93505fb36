"""The options of `holdfast exec` and of all commands that run one, as a table that needs no library, and the
implementation of `exec`.

`exec.py` turns them into click options. `parse` understands a command line without errors that does not ask
for help. All others go to click, which reports what is wrong. So a normal start does not load click.
"""

import os
import sys

from holdfast.errors import HoldfastError
from holdfast.light import TYPE_CHECKING, Final, Iterable, Literal, Mapping, NamedTuple, Sequence, value

if TYPE_CHECKING:
    from holdfast.exec.outcome import Ending, Explained, Planned
    from holdfast.exec.wish import Wish
    from holdfast.sandbox.launcher.spare import EarlyStart
    from holdfast.sandbox.limits import Limits
    from holdfast.sandbox.plan.select import Choice

MAX_PORT: Final = 65535
MAX_DAYS: Final = 365  # longer is a typing error
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ExecOption(NamedTuple):
    """One option. `many` may be repeated, `port` is a number, `span` a time; `choices` lists all values."""

    name: str
    help: str
    kind: Literal["flag", "one", "many", "port", "span"] = "one"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None
    field: str = ""  # if it differs from the name
    variable: str = ""  # environment variable with the value, if the option is not given
    hidden: bool = False  # in the help

    @property
    def target(self) -> str:
        return self.field or self.name.removeprefix("--").replace("-", "_")

    @property
    def absent(self) -> object:
        """The value when the option is not given."""
        default = os.environ.get(self.variable) or self.default if self.variable else self.default
        return {"flag": False, "one": default, "many": (), "port": (), "span": None}[self.kind]


BACKEND: Final = ExecOption(
    "--backend",
    "Which sandbox to use; auto takes the strongest that works here.",
    choices=("auto", "namespaces", "bwrap", "landlock"),
    default="auto",
)
DEGRADED: Final = ExecOption(
    "--degraded", "Run even if the policy can be enforced only in part, and report what is missing.", "flag"
)
USAGE: Final = (  # what a command, with its descendants, may use
    ExecOption("--memory", "Let it use this much memory, as 512M or 2G.", metavar="SIZE"),
    ExecOption("--pids", "Let it have this many processes and threads.", metavar="NUMBER"),
    ExecOption("--cpus", "Let it use this many processors' worth of time, as 1.5.", metavar="NUMBER"),
    ExecOption("--disk", "Let it write this much to disks, as 5G.", metavar="SIZE"),
    ExecOption("--open-files", "Let each process have this many files open.", metavar="NUMBER"),
    ExecOption("--timeout", "End it after this time, as 90s, 10m or 1h30m.", metavar="TIME"),
)
LIMITS: Final = (
    ExecOption("--read-only", "Let it read everything and write nothing.", "flag"),
    ExecOption(
        "--workspace-write",
        "The directory it runs in, /tmp and $TMPDIR are writable too.  [default]",
        "flag",
    ),
    ExecOption("--full-access", "Start without restrictions; other options add them.", "flag"),
    ExecOption("--profile", "Take the limits from a TOML file.", metavar="FILE"),
    ExecOption("--allow-write", "Let it write PATH too. Can be repeated.", "many", "PATH"),
    ExecOption("--allow-read", "Let it read PATH too. Can be repeated.", "many", "PATH"),
    ExecOption("--deny", "Let it neither read nor write PATH. Can be repeated.", "many", "PATH|GLOB"),
    ExecOption(
        "--allow-credentials",
        "Let it read credentials such as ~/.ssh and ~/.aws; --allow-read PATH allows one of them.",
        "flag",
    ),
    ExecOption(
        "--pass-env",
        "Pass the variable NAME although it holds a secret, as API keys do. Can be repeated.",
        "many",
        "NAME",
    ),
    ExecOption(
        "--allow-socket",
        "Let it connect to this unix socket of the machine; the network has none. Can be repeated.",
        "many",
        "PATH",
    ),
    ExecOption(
        "--network",
        "Allow or block the network.  [default: off; on with --full-access]",
        choices=("on", "off"),
    ),
    ExecOption(
        "--loopback-port",
        "Block the network except this TCP port on the host's loopback. Can be repeated.",
        "port",
        "PORT",
    ),
    ExecOption(
        "--allow-host",
        "Allow only this host (ports 80 and 443, or HOST:PORT): api.example.com, *.example.org:443; a URL "
        "with methods before it allows only such requests: "
        "'GET,HEAD https://api.example.com/v1/'. Can be repeated.",
        "many",
        "HOST[:PORT]|URL",
    ),
    ExecOption(
        "--allow-net",
        "Allow only the hosts that this client's own settings name: pip, npm, cargo, go, apt, git, "
        "model. Can be repeated.",
        "many",
        "CLIENT",
    ),
    ExecOption(
        "--deny-host",
        "Deny this host even if another rule allows it. Can be repeated.",
        "many",
        "HOST[:PORT]",
    ),
    ExecOption(
        "--net-limit",
        "Limit traffic to allowed hosts: 500M in total, 10M/s or 20conn/s; for one host or pattern: "
        "api.example.com=500M. Can be repeated.",
        "many",
        "[HOST=]AMOUNT",
    ),
    ExecOption("--allow-private", "Allow hosts at private addresses, such as those of a LAN.", "flag"),
    ExecOption(
        "--ask-network",
        "Ask in the terminal before connecting to a host that no rule covers; no answer in 60 s denies it.",
        "flag",
    ),
    ExecOption(
        "--secret",
        "Keep the secret NAME out of the sandbox: the command sees a placeholder, which is replaced in "
        "requests to HOST. NAME is an environment variable; NAME=file:PATH@HOST and NAME=cmd:PROGRAM@HOST "
        "read the secret from elsewhere. Can be repeated.",
        "many",
        "NAME@HOST[:PORT]",
    ),
    ExecOption("--cwd", "Run in this directory, which becomes the workspace.", metavar="DIR"),
    BACKEND,
    DEGRADED,
)
EXEC: Final = (
    *USAGE,
    ExecOption(
        "--env",
        "Run on another machine: an environment of environments.toml, or the address of a server. "
        "Directories and paths are those of that machine.",
        metavar="NAME|URL",
        field="where",
    ),
    ExecOption(
        "--watch",
        "Trace system calls to report each denial exactly; --json lists all of them.",
        "flag",
    ),
    ExecOption("--print-plan", "Print the plan and the backend; run nothing.", "flag"),
    ExecOption(
        "--explain",
        "Print which rule decides about this path; run nothing. Can be repeated.",
        "many",
        "PATH",
    ),
    ExecOption("--report", "Print the network traffic at the end: hosts, ports, bytes, times.", "flag"),
    ExecOption(
        "--json",
        "Print how it ended as one JSON object, last on standard error; plans and explanations on "
        "standard output.",
        "flag",
        field="as_json",
    ),
)


@value
class ExecLimits:
    """The given options."""

    read_only: bool
    workspace_write: bool
    full_access: bool
    profile: str | None
    allow_write: tuple[str, ...]
    allow_read: tuple[str, ...]
    deny: tuple[str, ...]
    allow_credentials: bool
    pass_env: tuple[str, ...]
    allow_socket: tuple[str, ...]
    network: str | None
    loopback_port: tuple[int, ...]
    allow_host: tuple[str, ...]
    allow_net: tuple[str, ...]
    deny_host: tuple[str, ...]
    net_limit: tuple[str, ...]
    allow_private: bool
    ask_network: bool
    secret: tuple[str, ...]
    cwd: str | None
    backend: str
    degraded: bool

    def wish(self, *, watch: bool = False, limits: "Limits | None" = None) -> "Wish":
        """Build the wish of these options, with limits on resources.

        Raises:
            UsageError: options exclude each other.
        """
        from holdfast.exec.wish import Wish, preset

        presets = {
            "--read-only": self.read_only,
            "--workspace-write": self.workspace_write,
            "--full-access": self.full_access,
            "--profile": self.profile is not None,
        }
        return Wish(
            preset([flag for flag, given in presets.items() if given]),
            self.profile,
            self.allow_write,
            self.allow_read,
            self.deny,
            self.allow_socket,
            network=None if self.network is None else self.network == "on",
            cwd=self.cwd,
            choice=choice_of(self.backend, degraded=self.degraded),
            loopback_ports=self.loopback_port,
            watch=watch,
            allow_credentials=self.allow_credentials,
            allow_host=self.allow_host,
            allow_net=self.allow_net,
            deny_host=self.deny_host,
            net_limit=self.net_limit,
            allow_private=self.allow_private,
            ask_network=self.ask_network,
            secrets=self.secret,
            pass_env=self.pass_env,
            limits=limits,
        )

    def local(self) -> dict[str, bool]:
        """The given options that have no meaning on another machine."""
        return {
            "--backend": self.backend != "auto",
            "--degraded": self.degraded,
            "--loopback-port": bool(self.loopback_port),
            "--allow-credentials": self.allow_credentials,
            "--pass-env": bool(self.pass_env),
        }


def choice_of(backend: str, *, degraded: bool) -> "Choice":
    """The backend and the degree of enforcement that these two options allow."""
    from holdfast.sandbox.plan.select import Backend, Choice

    return Choice(None if backend == "auto" else Backend(backend), degraded)


def read_span(text: str) -> float | None:
    """Parse a duration as people write it (90s, 30m, 12h, 7d) into seconds; None if it is invalid."""
    number, unit = text[:-1], _SECONDS.get(text[-1:], 0)
    seconds = int(number) * unit if number.isascii() and number.isdecimal() and len(number) < 10 else 0
    return float(seconds) if 0 < seconds <= MAX_DAYS * _SECONDS["d"] else None


def gather(given: dict[str, object]) -> ExecLimits:
    """Take the options that are limits out of all options."""
    return ExecLimits(**{option.target: given.pop(option.target) for option in LIMITS})  # type: ignore[arg-type]


def parse(
    options: Iterable[ExecOption], args: Sequence[str]
) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """The values of these options by field, and the words after them; None: let click parse or report it."""
    known = {option.name: option for option in options}
    given: dict[str, object] = {option.target: option.absent for option in known.values()}
    if any(
        option.choices and given[option.target] not in (None, *option.choices) for option in known.values()
    ):
        return None  # an invalid value, from a variable
    words = iter(args)
    for word in words:
        if word == "--":
            return given, tuple(words)
        if not word.startswith("-"):
            return given, (word, *words)
        name, joined, text = word.partition("=")
        option = known.get(name)
        if option is None or (joined and option.kind == "flag"):
            return None
        if option.kind == "flag":
            given[option.target] = True
            continue
        content = text if joined else next(words, None)
        if content is None or not _take(option, content, given):
            return None
    return given, ()


def _take(option: ExecOption, content: str, given: dict[str, object]) -> bool:
    """Store the value; False if it is invalid."""
    if option.choices and content not in option.choices:
        return False
    if option.kind == "one":
        given[option.target] = content
        return True
    if option.kind == "span":
        given[option.target] = seconds = read_span(content)
        return seconds is not None
    kept: object = content
    if option.kind == "port":
        if not (content.isascii() and content.isdecimal() and 0 < int(content) <= MAX_PORT):
            return False
        kept = int(content)
    before = given[option.target]
    given[option.target] = (*(before if isinstance(before, tuple) else ()), kept)
    return True


# --- execution


def execute(
    limits: ExecLimits,
    command: Sequence[str],
    where: str | None = None,
    explain: Sequence[str] = (),
    *,
    watch: bool = False,
    print_plan: bool = False,
    report: bool = False,
    as_json: bool = False,
    **usage: object,
) -> int:
    """Run the command, or print what would be done; return the exit code. `usage` is for `USAGE`."""
    confines = where is None and sys.platform == "linux" and not (explain or print_plan)
    early = _begin_early(limits) if confines and command and not any(usage.values()) else None
    from holdfast.exec import outcome

    told: Ending | Planned | Explained
    try:
        limited = read_limits(usage)
        if where is not None:
            from holdfast.exec import remote

            remote.refuse_local_options(
                limits.local() | {"--watch": watch, "--print-plan": print_plan, "--explain": bool(explain)}
            )
            told = remote.execute(where, limits.wish(limits=limited), command)
        else:
            wish = limits.wish(watch=watch, limits=limited)
            told = _run_here(wish, command, explain, early, print_plan=print_plan)
    except HoldfastError as exc:
        told = outcome.build_failure(exc)
    stream = sys.stderr if isinstance(told, outcome.Ending) else sys.stdout
    if stream is None:  # closed, so there is no reader
        return told.code
    if isinstance(told, outcome.Ending) and not as_json and stream.isatty():
        stream.writelines(f"{line}\n" for line in told.withheld.words())
    if report and isinstance(told, outcome.Ending) and not as_json:
        stream.writelines(f"{line}\n" for line in told.account())
    for line in _lines(told, as_json=as_json):
        stream.write(f"{line}\n")
    stream.flush()
    return told.code


def read_limits(usage: Mapping[str, object]) -> "Limits | None":
    """Parse the options of `USAGE`; None if none is given.

    Raises:
        UsageError: one of them is invalid.
    """
    given = {name: content for name, content in usage.items() if content is not None}
    if not given:
        return None
    from holdfast.sandbox.policy import amounts

    return amounts.parse(given)


def _begin_early(limits: ExecLimits) -> "EarlyStart | None":
    """Begin to create what most commands need, while the plan's code is loaded and the plan is made.

    None where the options do not decide it, or require something else.
    """
    if limits.full_access or limits.profile is not None or limits.backend not in ("auto", "namespaces"):
        return None
    from holdfast.sandbox.launcher.spare import begin_early
    from holdfast.sandbox.protocol.orders import ConfinementKind

    return begin_early(ConfinementKind(userns=True, network_off=limits.network != "on"))


def _run_here(
    wish: "Wish",
    command: Sequence[str],
    explain: Sequence[str],
    early: "EarlyStart | None",
    *,
    print_plan: bool,
) -> "Ending | Planned | Explained":
    if sys.platform != "linux":
        from holdfast.local.linux import require_linux

        require_linux("holdfast exec without --env", "holdfast exec --env NAME|URL -- COMMAND")
    from holdfast.exec import run

    if print_plan:
        return run.plan(wish)
    return run.explain(wish, explain) if explain else run.execute(wish, command, early)


def _lines(told: "Ending | Planned | Explained", *, as_json: bool) -> list[str]:
    if not as_json:
        return told.lines()
    import json

    return [json.dumps(told.report())]
