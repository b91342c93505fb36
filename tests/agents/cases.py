"""Every built-in fault, and what must be said of every agent CLI that meets it."""

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
    kill: bool = False  # somebody kills it once it is at work


FAULTS: Final = {
    "none": Fault("a task that a tool must do", "write"),
    "read-only-home": Fault(
        "its home is read-only, and holds nothing but settings", wish={"relocate": False}
    ),
    "denied-state": Fault(
        "its home is read-only, and holds its state", wish={"relocate": False}, earlier=True
    ),
    "network-off": Fault("the sandbox has no network", wish={"network": False}),
    "dns": Fault("the provider's name is not found", wish={"base": "http://provider.invalid"}),
    "401": Fault("the key is refused", "401"),
    "404": Fault("the model does not exist", "404"),
    "429": Fault("too many requests", "429"),
    "500": Fault("the provider fails", "500"),
    "hang": Fault("the provider accepts and never answers", "hang"),
    "stall": Fault("the answer stops in the middle", "stall"),
    "truncate": Fault("the answer ends in the middle", "truncate"),
    "approval": Fault("it would need an approval, and nobody is asked", "write", {"unattended": False}),
    "stdin": Fault("its stdin is an open pipe", stdin_open=True),
    "killed": Fault("somebody else kills it", "hang", kill=True),
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
    **{(cli, "hang"): QUIET for cli in CLIS},
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
    ("codex", "network-off"): completed("no-tools"),  # its commands have none; it reaches its model
    ("codex", "429"): failed("rate-limit"),
    ("codex", "approval"): completed("unverified"),
    ("codex", "stdin"): STDIN,
    # opencode
    ("opencode", "read-only-home"): failed("sandbox", "{home}/.local"),
    ("opencode", "denied-state"): failed("sandbox", "{home}/.local/share/opencode/log/*"),
    # It tries again for a minute without a word.
    ("opencode", "429"): failed("rate-limit"),
    ("opencode", "500"): failed("provider"),
    ("opencode", "dns"): failed("network"),
    ("opencode", "hang"): Expected("stalled"),  # it says nothing before the first answer
    ("opencode", "approval"): failed("permission"),
    ("opencode", "stdin"): STDIN,
    # claude
    ("claude", "read-only-home"): completed("no-tools", "with-denials", path="{home}/.claude.json*"),
    ("claude", "denied-state"): completed("no-tools", "with-denials", path="{home}/.claude.json*"),
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
    ("qwen", "500"): QUIET,  # it tries again for two minutes without a word
    ("qwen", "429"): Expected("running", "retrying"),  # it says that it waits, not for what
    ("qwen", "dns"): Expected("stalled", "network-wait"),
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
