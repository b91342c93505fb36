"""Every built-in fault, what is true of it, and what must be said of every agent CLI that meets it.

By `right` a cell of the confusion table is judged: what a person would say who sees that terminal. What must
be said is narrower, and per CLI: it holds a release to what was recorded of it.
"""

import signal
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.agent_clis import CLIS


@dataclass(frozen=True)
class Fault:
    """What goes wrong: how the model behaves, what the wish says, and what the test has to do besides."""

    words: str
    scenario: str = "hello"
    wish: dict[str, Any] = field(default_factory=dict)
    earlier: bool = False  # its state is in the home already, from a run that could write there
    stdin_open: bool = False  # nobody closes its stdin
    send: signal.Signals | None = None  # what somebody sends to its program once it is at work
    secure: bool = False  # its provider has a certificate that nobody signed
    right: tuple[str, ...] = ()  # patterns of what is true
    modes: tuple[str, ...] = ("pipe",)
    locked: bool = False  # somebody else holds its databases
    command: bool = False  # to its command, and not to its program, `send` goes
    unwritable: bool = False  # its databases are read-only
    broken: bool = False  # its settings cannot be read
    clis: tuple[str, ...] = CLIS
    otherwise: dict[str, tuple[str, ...]] = field(default_factory=dict)  # CLI → what is true of it besides

    def truths(self, cli: str) -> tuple[str, ...]:
        return (*self.right, *self.otherwise.get(cli, ()))


PIPE, TTY, ACP = "pipe", "tty", "acp"
ALL: Final = (PIPE, TTY, ACP)
WITH_ACP: Final = ("opencode", "gemini", "qwen")

FAULTS: Final = {
    "none": Fault("a task that a tool must do", "write", right=("completed", "waiting(prompt)"), modes=ALL),
    "read-only-home": Fault(
        "its home is read-only, and holds nothing but settings",
        wish={"relocate": False},
        right=("failed(sandbox)", "blocked(sandbox-path)", "completed* with-denials*"),
    ),
    "denied-state": Fault(
        "its home is read-only, and holds its state",
        wish={"relocate": False},
        earlier=True,
        right=("failed(sandbox)", "blocked(sandbox-path)", "completed* with-denials*"),
    ),
    "network-off": Fault(
        "the sandbox has no network",
        wish={"network": False, "own_sandbox": False},  # one sandbox for the CLI and its commands
        right=("*(sandbox-network)", "failed(sandbox)"),
    ),
    "dns": Fault(
        "the provider's name is not found",
        wish={"base": "http://provider.invalid"},
        right=("*(*network*)",),
        modes=ALL,
    ),
    "tls": Fault(
        "the provider's certificate is not trusted", secure=True, right=("*(*network*)",), modes=ALL
    ),
    "401": Fault("the key is refused", "401", right=("*(*auth)",), modes=ALL),
    "404": Fault("the model does not exist", "404", right=("*(*model)",), modes=ALL),
    "429": Fault("too many requests", "429", right=("*(*rate-limit)",), modes=ALL),
    "quota": Fault("nothing is left of the account", "quota", right=("*(*quota)",), modes=ALL),
    "context": Fault("the model takes no more text", "context", right=("*(*context)",)),
    "500": Fault(  # a screen may tell that it tries again, and why only when it gives up
        "the provider fails", "500", right=("*(*provider)", "running(retrying)"), modes=ALL
    ),
    "hang": Fault(
        "the provider accepts and never answers",
        "hang",
        right=("stalled*", "running(thinking)", "running(network-wait)"),
        modes=ALL,
    ),
    "stall": Fault(
        "the answer stops in the middle",
        "stall",
        right=("stalled*", "running(thinking)", "running(streaming)"),
    ),
    "truncate": Fault("the answer ends in the middle", "truncate", right=("*(*provider)",)),
    "approval": Fault(
        "it would need an approval, and nobody is asked",
        "ask",
        {"unattended": False},
        right=("failed(permission)", "failed(sandbox)", "completed* no-tools*"),
    ),
    "stdin": Fault("its stdin is an open pipe", stdin_open=True, right=("waiting(stdin-eof)",)),
    "killed": Fault(
        "somebody else kills it", "hang", send=signal.SIGKILL, right=("failed(crash)",), modes=ALL
    ),
    "stopped": Fault(
        "somebody else stops it", "hang", send=signal.SIGSTOP, right=("blocked(stopped)",), modes=ALL
    ),
    "tool-fails": Fault(
        "its only command fails, and it says that it is done",
        "fail",
        right=("completed* unverified*", "waiting(prompt)"),
        modes=ALL,
    ),
    "tool-runs": Fault("its command takes its time", "sleep", right=("running(tool)",), modes=ALL),
    "loop": Fault(
        "the same command again and again",
        "loop",
        right=("running(*)", "failed(limit)", "waiting(decision)", "failed(timeout)"),
    ),
    "locked": Fault(
        "somebody else holds its database",
        wish={"relocate": False},
        earlier=True,
        locked=True,
        right=("failed(state)", "blocked(lock)", "starting", "running(*)", "stalled*"),
        clis=("codex", "opencode"),  # the others have none
    ),
    "unwritable": Fault(
        "its database is read-only, and its home is not",
        wish={"relocate": False},
        earlier=True,
        unwritable=True,
        right=("failed(sandbox)", "failed(state)", "blocked(sandbox-path)", "completed* with-denials*"),
        clis=("codex", "opencode"),
    ),
    "broken": Fault(
        "its settings cannot be read",
        wish={"relocate": False},
        broken=True,
        right=("failed(configuration)",),
        otherwise={"claude": ("completed no-tools", "waiting(decision)")},  # it goes on without, or asks
        modes=(PIPE, TTY),
    ),
    "command-killed": Fault(
        "somebody else kills its command, and it says that it is done",
        "sleep",
        send=signal.SIGKILL,
        command=True,
        right=("completed* unverified*", "waiting(prompt)"),
        otherwise={"opencode": ("stalled*", "running(thinking)")},  # it waits for ever, confined or not
        modes=(PIPE, TTY),
    ),
    "left": Fault(
        "it ends while its command runs",
        "leave",
        right=("completed* unverified*", "completed* background*"),
        otherwise={"claude": ("running(tool)",)},  # it does not end before its command does
    ),
    "memory": Fault(
        "its command takes more memory than it has",
        "eat",
        wish={"limits": {"memory": "1200M"}},
        right=("failed(limit)", "failed(memory)", "completed* unverified*"),
    ),
    "idle": Fault("nobody has asked it anything", right=("waiting(prompt)",), modes=(TTY,)),
}


# Told elsewhere, in test_decisions.py.
DECISION: Final = Fault(
    "it asks for an approval, on its terminal", right=("waiting(decision)",), modes=(TTY,)
)
SITUATIONS: Final = FAULTS | {"decision": DECISION}
CELLS: Final = [
    (cli, mode, name)
    for name, fault in SITUATIONS.items()
    for mode in fault.modes
    for cli in fault.clis
    if mode != ACP or cli in WITH_ACP
]
IN_TIME_S: Final = 15.0

# What cannot be read of its settings, below its home.
SETTINGS: Final = {
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "claude": ".claude/settings.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
}

# Cells that are not right in time, and why.
_ONLY_429: Final = "it repeats the status, 429, and not what the provider says about it"
REASONS: Final[dict[tuple[str, str, str], str]] = {
    ("codex", PIPE, "quota"): _ONLY_429,
    ("codex", TTY, "quota"): _ONLY_429,
    ("claude", PIPE, "quota"): _ONLY_429,
    ("opencode", PIPE, "hang"): "it says nothing before its first answer, so that it seems to be starting",
    ("qwen", PIPE, "truncate"): "it tries half an answer again, several times, before it calls it a failure",
    **{
        ("gemini", mode, name): "its event calls a failed command a success, and has no exit code"
        for mode, name in ((PIPE, "tool-fails"), (ACP, "tool-fails"), (PIPE, "command-killed"))
    },
}


@dataclass(frozen=True)
class Expected:
    """The state to wait for; an end is waited for. `path` is a pattern of what was denied."""

    state: str
    detail: str = ""
    failure: str | None = None
    flags: frozenset[str] = frozenset()
    path: str = ""  # with {home}


def failed(failure: str, path: str = "") -> Expected:
    return Expected("failed", failure=failure, path=path)


def completed(*flags: str, path: str = "") -> Expected:
    return Expected("completed", flags=frozenset(flags), path=path)


def retrying(failure: str) -> Expected:
    return Expected("running", "retrying", failure)


CUT_OFF: Final = Expected("blocked", "sandbox-network", path="127.0.0.1:*")
QUIET: Final = Expected("stalled", "thinking")
STDIN: Final = Expected("waiting", "stdin-eof")

EXPECTED: Final[dict[tuple[str, str], Expected]] = {
    **{(cli, "none"): completed() for cli in CLIS},
    **{(cli, "401"): failed("auth") for cli in CLIS},
    **{(cli, "404"): failed("model") for cli in CLIS},
    **{(cli, "hang"): QUIET for cli in CLIS if cli != "opencode"},  # which may seem to be starting
    **{(cli, "stall"): QUIET for cli in CLIS},
    **{(cli, "killed"): failed("crash") for cli in CLIS},
    **{(cli, "network-off"): CUT_OFF for cli in CLIS},
    **{(cli, "dns"): retrying("network") for cli in CLIS},
    **{(cli, "500"): retrying("provider") for cli in CLIS},
    **{(cli, "429"): retrying("rate-limit") for cli in CLIS},
    **{(cli, "truncate"): failed("provider") for cli in CLIS},
    # codex
    ("codex", "read-only-home"): failed("sandbox", "{home}/.codex"),
    ("codex", "denied-state"): failed("sandbox", "{home}/.codex/*"),
    ("codex", "429"): failed("rate-limit"),
    ("codex", "approval"): completed("no-tools"),  # its events do not tell what it refused
    ("codex", "stdin"): STDIN,
    # opencode
    ("opencode", "read-only-home"): failed("sandbox", "{home}/.local"),
    ("opencode", "denied-state"): failed("sandbox", "{home}/.local/share/opencode/log/*"),
    ("opencode", "approval"): failed("permission"),
    ("opencode", "stdin"): STDIN,
    # claude
    ("claude", "read-only-home"): completed("no-tools", "with-denials", path="{home}/.claude.json*"),
    ("claude", "denied-state"): completed("no-tools", "with-denials", path="{home}/.claude/*"),
    ("claude", "approval"): failed("permission"),
    ("claude", "stdin"): STDIN,
    # gemini
    ("gemini", "read-only-home"): Expected("blocked", "sandbox-path", path="{home}/.gemini/projects.json*"),
    ("gemini", "denied-state"): Expected("blocked", "sandbox-path", path="{home}/.gemini/projects.json*"),
    ("gemini", "stall"): Expected("stalled", "streaming"),  # it says what it has got
    ("gemini", "approval"): completed("no-tools"),
    ("gemini", "stdin"): STDIN,
    # qwen
    ("qwen", "read-only-home"): failed("sandbox", "{home}/.qwen"),
    ("qwen", "denied-state"): failed("sandbox", "{home}/.qwen/*"),
    ("qwen", "approval"): completed("no-tools"),
    ("qwen", "stdin"): STDIN,
}

# One of each class with each CLI, as far as that takes seconds; the others are in the matrix.
QUICK: Final = {
    ("codex", "none"), ("codex", "read-only-home"), ("codex", "network-off"), ("codex", "401"),
    ("codex", "429"), ("codex", "hang"), ("codex", "stdin"), ("codex", "killed"),
    ("claude", "none"), ("claude", "401"), ("claude", "500"), ("claude", "approval"),
    ("opencode", "read-only-home"), ("gemini", "read-only-home"), ("qwen", "read-only-home"),
}  # fmt: skip
