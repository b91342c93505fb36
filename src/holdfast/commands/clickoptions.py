"""Our additions to click: options shared by several commands, and groups that load commands when used."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.dispatch.rules.pressure import HostLimits
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

F = TypeVar("F", bound=Callable[..., object])

_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def duration(text: str) -> float:
    """Parse a duration as people write it (90s, 30m, 12h, 7d) into seconds; the type of an option.

    Raises:
        BadParameter: it is invalid.
    """
    from holdfast.commands.options import read_span  # few commands take one

    seconds = read_span(text)
    if seconds is None:
        raise click.BadParameter(f"{text!r} is no duration such as 90s, 30m, 12h or 7d")
    return seconds


def size(text: str) -> int:
    """Parse a size into bytes; the type of an option.

    Raises:
        BadParameter: it is invalid.
    """
    found = re.fullmatch(r"([0-9]{1,9})([KMG]?)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is no size such as 512M or 2G")
    return int(found[1]) * _BYTES[found[2]]


def complete_id(given: str, ids: Iterable[str], what: str) -> str:
    """Complete the unique beginning of an id, also without its prefix (codex-1f2e, r_1f2e), or return it.

    Raises:
        UsageError: several ids begin so.
    """
    known = set(ids)
    found = [one for one in known if re.match(rf"([^-]+-|[^_]+_)?{re.escape(given)}", one)]
    if given in known or not found:
        return given
    if len(found) > 1:
        raise UsageError(f"{given} is the beginning of several {what}: {', '.join(sorted(found))}")
    return found[0]


# Keys in the meta of a context: the home, and the typed options that say where things are, in a form that can
# be typed again.
_HOME: Final = "holdfast.home"
_TYPED: Final = "holdfast.typed"


def note_typed(context: click.Context, option: str, value: str) -> None:
    """Record an option for the commands that we print, so that a user who pastes one uses the same place."""
    context.meta.setdefault(_TYPED, {})[option] = value


def typed_places(context: click.Context | None) -> Mapping[str, str]:
    """The typed options that say where things are."""
    return {} if context is None else context.meta.get(_TYPED, {})


def chosen_home(context: click.Context | None) -> Path:
    """The home of a command: its --home, or the default."""
    from holdfast.home import default_home

    given: Path | None = None if context is None else context.meta.get(_HOME)
    return given or default_home().absolute()


def _complete_home(context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    if value is not None:
        context.meta[_HOME] = value.absolute()  # absolute, because daemons have another working directory
        note_typed(context, "--home", str(value.absolute()))
    return chosen_home(context)


def _make_home_option(*, exposed: bool) -> Callable[[F], F]:
    return click.option(
        "--home",
        type=click.Path(path_type=Path),
        callback=_complete_home,
        expose_value=exposed,
        is_eager=True,  # the default of --store depends on it
        help="The directory for workers and workspaces [default: $HOLDFAST_HOME, or below $XDG_STATE_HOME].",
    )


home_option: Final = _make_home_option(exposed=True)
context_home_option: Final = _make_home_option(exposed=False)  # a command that needs it calls `chosen_home`


def combine(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options or arguments into one decorator, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# Options `most`, `min_free` and `max_load`: how much of this host workers may use.
host_options: Final = combine(
    click.option(
        *("--max", "most"),
        type=click.IntRange(1, 200),
        metavar="N",
        help="Limit how many runs happen at once here [default: by CPUs and memory].",
    ),
    click.option(
        *("--min-free-memory", "min_free"),
        type=size,
        metavar="SIZE",
        help="Keep this much memory free: 512M, 2G; 0 turns the check off [default: 1G, or a tenth].",
    ),
    click.option(
        *("--max-load", "max_load"),
        type=click.FloatRange(min=0),
        metavar="N",
        help="Start nothing while the load per CPU is above N; 0 turns the check off [default: 4].",
    ),
)


def choose_limits(min_free: int | None, max_load: float | None) -> "HostLimits":
    """The given limits, with this host's defaults for the others."""
    from holdfast.dispatch import hostload
    from holdfast.dispatch.rules import pressure

    usual = pressure.default_limits(hostload.look())
    return pressure.HostLimits(
        usual.min_free if min_free is None else min_free or None,
        usual.max_load if max_load is None else max_load or None,
    )


Sections = Mapping[str, Sequence[str]]  # heading: names of commands, in display order

SECTIONS: Final[Mapping[str, Sections]] = {
    "": {
        "Run a command": ("exec", "cp", "environment", "serve", "forward", "relay"),
        "Run a board of tasks": ("up", "task", "board", "dispatch", "open", "web"),
        "Run agents": ("worker", "mcp", "config", "handoff"),
        "See and manage what runs": ("status", "down", "doctor"),
    },
    "task": {
        "Look": ("list", "show", "why", "inbox"),
        "Create and change": ("create", "edit", "assign", "link", "comment", "attach", "tell"),
        "Decide": ("review", "answer", "unblock", "retry", "complete", "block", "cancel", "move", "ack"),
        "Look at its runs": ("runs", "log", "diff", "file", "policy"),
    },
    "board": {
        "Look": ("list", "show", "stats", "metrics"),
        "Create and change": ("create", "switch", "cap", "pause", "resume", "archive"),
        "Copy": ("backup", "restore", "import-hermes"),
    },
    "environment": {"Look": ("list", "check"), "Change": ("add", "remove")},
    "relay": {"Serve": ("serve",), "Look": ("list",), "Say who may": ("token",)},
    "relay token": {"Look": ("list",), "Change": ("add", "revoke")},
    "worker": {
        "Run": ("run", "wait", "grant", "apply", "stop", "prune"),
        "Look": ("list", "watch", "status", "why", "logs", "result", "diff", "equivalence", "agents"),
        "Take part": ("attach", "send", "approve"),
    },
}


class SectionedGroup(click.Group):
    """A group with headings. Commands without one are shown under "Other commands"; a test forbids that."""

    def __init__(self, *args: Any, sections: Sections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.sections:
            return super().format_commands(ctx, formatter)
        named = {name for names in self.sections.values() for name in names}
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = {
            name: command for name, command in found.items() if command is not None and not command.hidden
        }
        others = tuple(name for name in shown if name not in named)
        width = formatter.width - 6 - max(map(len, shown), default=0)
        for heading, names in {**self.sections, "Other commands": others}.items():
            rows = [(name, shown[name].get_short_help_str(width)) for name in names if name in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=max(map(len, shown)) + 2)
        return None


class Deferred(SectionedGroup):
    """`deferred` names the module of each command, so that no command waits for the imports of others."""

    def __init__(self, *args: Any, deferred: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deferred = deferred

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.deferred})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:  # click suggests only loaded commands, and before 8.4 none
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx))
            if not near or args[0].startswith("-"):
                raise
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.deferred and cmd_name not in self.commands:
            found = getattr(import_module(f"holdfast.{self.deferred[cmd_name]}"), cmd_name)
            self.add_command(found, cmd_name)
        return super().get_command(ctx, cmd_name)
