"""`holdfast config`: parse, call, print. All agents have the same commands."""

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from holdfast.commands.clickoptions import combine
from holdfast.commands.output import pasteable
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, UsageError, face
from holdfast.local.linux import require_linux

if TYPE_CHECKING:
    from holdfast.agentconfig.decision import AgentName
    from holdfast.agentconfig.environments import Environment
    from holdfast.agentconfig.order import EditPlan, Order

_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)
_REFUSED: Final = 125
_NOT_COMPARED: Final = 78  # EX_CONFIG of sysexits(3): 1 means that a check found a difference
_CLIENT_EXITS: Final = """
Exit codes of all of these: 0 done; 1 what is in force differs (check), or else the file holds what is not
ours, or the agent refuses it; 2 the arguments make no sense; 3 something named is not there; 71 it could not
be written, or the agent does not answer; 78 check was refused what it would compare: the file holds what is
not ours, or the agent refuses it; 125 no safe decision is possible here, or the agent does not start without
its sandbox.
"""


@click.group()
def config() -> None:
    """Write a safe configuration for an agent CLI, and check it.

    \b
    Examples:
      holdfast config codex plan --network none
      holdfast config claude apply
    """


@config.group()
def codex() -> None:
    """Configure the sandbox of the Codex CLI.

    Exit codes of all of these: 0 done; 1 the values in force differ (check), or else Codex refuses the file;
    2 the arguments or the file are invalid; 3 something named does not exist; 71 it could not be written; 78
    check cannot compare, because Codex refuses the file; 125 no safe decision is possible here, and nothing
    was written.

    \b
    Examples:
      holdfast config codex plan --network none
      holdfast config codex check
    """


# The options of the request, the same for all agents.
_wish_options: Final = combine(
    click.option("--home", type=_DIRECTORY, help="Your own configuration directory.  [default: the agent's]"),
    click.option("--task-home", type=_DIRECTORY, help="A home for one task; no link is followed."),
    click.option("--cwd", type=_DIRECTORY, help="Where the agent works.  [default: here]"),
    click.option(
        "--network",
        metavar="none|full|HOST",
        multiple=True,
        help="What commands may reach; repeat for more hosts.  [default: none]",
    ),
    click.option(
        "--writes",
        type=click.Choice(["nothing", "workspace", "git", "everything"]),
        default="workspace",
        show_default=True,
        help="What commands may change; git means the workspace and its commits.",
    ),
    click.option(
        "--writable",
        metavar="PATH",
        type=_DIRECTORY,
        multiple=True,
        help="Also let commands write PATH. Can be repeated.",
    ),
    click.option(
        "--board", metavar="DIR", type=_DIRECTORY, help="Also let a worker write its board's files."
    ),
    click.option(
        "--boundary",
        type=click.Choice(["none", "user", "container", "vm"]),
        default="none",
        show_default=True,
        help="What you know to be around the agent; it is never guessed.",
    ),
    click.option(
        "--trusted",
        metavar="REPO",
        type=_DIRECTORY,
        multiple=True,
        help="Trust a repository whose files you have read. Can be repeated.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema."),
)


def _order(
    agent: "AgentName",
    *,
    home: Path | None,
    task_home: Path | None,
    cwd: Path | None,
    writes: str,
    boundary: str,
    environment: str | None = None,
    environment_url: str | None = None,
    environment_token_file: Path | None = None,
    environment_default: bool = False,
    **wished: Any,
) -> "Order":
    from holdfast.agentconfig.decision import Boundary, Writes
    from holdfast.agentconfig.order import Order
    from holdfast.agentconfig.ownfile import own_home

    if home is not None and task_home is not None:
        raise UsageError("--home and --task-home cannot be used together", remedy="leave one of them out")
    return Order(
        home=Path(os.path.abspath(task_home or home or own_home(agent))),
        task=task_home is not None,
        cwd=Path(os.path.abspath(cwd or Path.cwd())),
        writes=Writes(writes),
        boundary=Boundary(boundary),
        environment=_environment(
            environment, environment_url, environment_token_file, default=environment_default
        ),
        **wished,
    )


def _environment(
    name: str | None, url: str | None, token_file: Path | None, *, default: bool
) -> "Environment | None":
    """The requested server of ours, as an entry of `environments.toml`.

    Raises:
        UsageError: the options contradict each other, or make an entry that Codex would refuse.
        NotFound, InvalidRequest: the token file is missing, or has no usable content.
    """
    from holdfast.agentconfig.environments import FILE, Environment
    from holdfast.client.environmentfile import from_toml

    if name is None:
        if url is not None or token_file is not None or default:
            raise UsageError(
                "--environment-url, --environment-token-file and --environment-default need --environment",
                remedy="--environment holdfast",
            )
        return None
    if token_file is not None and url is None:
        raise UsageError(
            "a token is for a server with an address", remedy="add --environment-url, or leave the token out"
        )
    token = None if token_file is None else _token(token_file)
    argv = () if url is not None else (*_own_words(), "serve", "--listen", "stdio")
    environment = Environment(name, argv, url, token, default)
    from_toml("\n".join(environment.lines()), source=FILE, folder="/")
    if url is None:
        require_linux("a server of ours on this machine", "add --environment-url ws://HOST:PORT")
    return environment


def _own_words() -> tuple[str, ...]:
    """This command itself, by absolute path."""
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) == "holdfast" and os.access(program, os.X_OK):
        return (program,)
    return (sys.executable, "-P", "-m", "holdfast")


def _token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except OSError as exc:
        raise NotFound(
            f"cannot read {path}: {exc.strerror}", remedy="give --environment-token-file a file you may read"
        ) from None
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"{path} is not text", remedy="give --environment-token-file a text file"
        ) from None
    if not token:
        raise InvalidRequest(f"{path} is empty", remedy="it holds what --ws-token-file of the server holds")
    return token


# --- what each command does, for any agent


def _plan(agent: str, *, as_json: bool, **wished: Any) -> None:
    from holdfast.agentconfig.decision import Severity

    planned = _edit("plan", agent, wished)
    _show(planned, as_json=as_json, done="would change")
    sys.exit(_REFUSED if planned.decision.severity is Severity.REFUSED else 0)


def _apply(agent: str, *, as_json: bool, **wished: Any) -> None:
    _show(_edit("apply", agent, wished), as_json=as_json, done="changed")


def _check(agent: str, *, as_json: bool, **wished: Any) -> NoReturn:
    """Print the differences and what could not be verified; exit with 1 if there are any differences."""
    from holdfast.agentconfig import order, ownfile
    from holdfast.agentconfig.decision import AgentName

    own = [wished.pop(name) for name in ("overrides", "sandbox") if name in wished]
    planned, found = _edit("check", agent, wished, *own)
    unseen = order.UNSEEN if agent == "codex" else ownfile.CLIENTS[AgentName(agent)].unseen
    if as_json:
        tree = {
            "schemaVersion": 1,
            "decision": planned.decision.report(),
            "differences": [each.report() for each in found],
            "notVerified": list(unseen),
        }
        click.echo(json.dumps(tree))
        sys.exit(1 if found else 0)
    for difference in found:
        click.echo(f"differs: {difference}")
    click.echo(
        f"{len(found)} values are not in force; try: holdfast config {agent} apply, with the same options"
        if found
        else f"{planned.decision.mode}: all values are in force"
    )
    for each in unseen:
        click.echo(f"  not verified: {each}")
    if planned.launch:
        click.echo(f"  only in a launch such as: {planned.launch}")
    sys.exit(1 if found else 0)


def _remove(agent: str, *, as_json: bool, **wished: Any) -> None:
    edited = _edit("remove", agent, wished)
    if as_json:
        click.echo(json.dumps({"schemaVersion": 1, "file": str(edited.path), "changed": edited.changed}))
    else:
        click.echo(f"{edited.path}: {'removed' if edited.changed else 'nothing of ours is in it'}")


def _edit(verb: str, agent: str, wished: Mapping[str, Any], *own: object) -> Any:
    """Carry out an order with the module of this agent; `own` are options of this agent only."""
    from holdfast.agentconfig import order, ownfile
    from holdfast.agentconfig.decision import AgentName

    name = AgentName(agent)
    try:
        asked = _order(name, **wished)
        if name is AgentName.CODEX:
            return getattr(order, verb)(asked, *own)
        return getattr(ownfile, verb)(ownfile.CLIENTS[name], asked)
    except HoldfastError as exc:
        refused = verb == "check" and isinstance(exc, InvalidRequest)
        _fail(exc, _NOT_COMPARED if refused else face(exc).exit)


def _show(planned: "EditPlan", *, as_json: bool, done: str) -> None:
    if as_json:
        click.echo(json.dumps(planned.report()))
        return
    decision = planned.decision
    click.echo(f"{decision.severity}: {decision.mode} ({decision.row})")
    click.echo(f"  because: {decision.reason}")
    for note in decision.notes:
        click.echo(f"  mind: {note}")
    for remedy in decision.remedies:
        click.echo(f"  try: {pasteable(remedy)}")
    for layer in planned.layers:
        click.echo(f"  the repository brings {layer}")
    for conflict in planned.conflicts:
        click.echo(f"  line {conflict.line}: {conflict.kind}: {conflict.detail}")
    if planned.launch:
        click.echo(f"  launch: {planned.launch}")
    lines = planned.diff()
    click.echo(f"{planned.path}: {done if lines else 'nothing changes'}")
    for line in lines:
        click.echo(line)
    if planned.environments is not None:
        lines = planned.environments_diff()
        click.echo(f"{planned.environments.path}: {done if lines else 'nothing changes'}")
        for line in lines:
            click.echo(line)


def _fail(exc: HoldfastError, code: int) -> NoReturn:
    click.echo(f"holdfast: {exc}", err=True)
    if exc.remedy:
        click.echo(f"  try: {pasteable(exc.remedy)}", err=True)
    sys.exit(code)


# --- the commands of each agent


def _example(*words: str) -> str:
    return f"\b\nExample:\n  holdfast config {' '.join(words)}"


def _add(group: click.Group, run: Callable[..., None], text: str, epilog: str | None = None) -> None:
    """Add a command to the group of an agent, named after its function."""
    name = run.__name__.removeprefix("_")
    command: Callable[..., None] = functools.partial(run, group.name)
    if group is codex and run is _check:
        command = _codex_options(command)
    if group is codex and run is not _remove:
        command = _environment_options(command)
    group.command(name, help=text, epilog=epilog)(_wish_options(command))


# Options of codex only: settings to compare with.
_codex_options: Final = combine(
    click.option(
        "-c",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="A setting that codex will be started with.",
    ),
    click.option(
        "-s",
        "sandbox",
        type=click.Choice(["read-only", "workspace-write", "danger-full-access"]),
        help="The sandbox mode for codex; overrides every file and every -c.",
    ),
)
# Options of codex only: a server of ours.
_environment_options: Final = combine(
    click.option(
        "--environment",
        metavar="NAME",
        help="Also give Codex an environment of this name in environments.toml: a Holdfast that it starts "
        "itself, so that nothing listens and no token is kept.",
    ),
    click.option("--environment-url", metavar="URL", help="Use this running server instead."),
    click.option(
        "--environment-token-file",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The token of that server, written into the entry and never shown.",
    ),
    click.option("--environment-default", is_flag=True, help="Make it Codex's default environment."),
)
_CODEX: Final = {
    _plan: ("Print the decision, its reason and the change; write nothing.", "plan --network none"),
    _apply: (
        "Write the configuration into config.toml.\n\n"
        "With --environment, into environments.toml too. A copy of what was there is kept beside it.",
        "apply --network none",
    ),
    _check: ("Ask the real Codex which values are in force, and compare.", "check"),
    _remove: ("Remove what apply wrote, and restore what it replaced.", "remove"),
}
_CLIENT: Final = {
    _plan: "Print the decision, its reason and the change; write nothing.",
    _apply: "Write the configuration into a file of its own.",
    _check: "Ask the real agent which values are in force, and compare.",
    _remove: "Delete the file that apply wrote.",
}
_CLIENTS: Final = {
    "claude": """Configure the sandbox of Claude Code.

The settings are in a file of their own, in force in a launch with --settings.

It confines commands in its own sandbox, and its file tools by rules.
""",
    "opencode": """Configure the rules of OpenCode.

They are in a file of their own, in force in a launch with OPENCODE_CONFIG_CONTENT.

It has no sandbox: a command that the rules allow does all that you can do. Run it under holdfast exec.
""",
}
for _run, (_text, _words) in _CODEX.items():
    _add(codex, _run, f"{_text}\n\n{_example('codex', _words)}")
for _name, _text in _CLIENTS.items():
    _group = click.Group(_name, help=_text + _CLIENT_EXITS, epilog=_example(_name, "plan"))
    config.add_command(_group)
    for _run, _does in _CLIENT.items():
        _add(_group, _run, _does, _example(_name, _run.__name__.removeprefix("_")))
