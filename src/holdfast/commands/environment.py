"""`holdfast environment`: parse, call, print."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast import __version__
from holdfast.commands.clickoptions import SECTIONS, SectionedGroup, context_home_option
from holdfast.commands.output import Answer, AnswerCommand, OneLine, is_json, json_option, printable
from holdfast.commands.store import current_home
from holdfast.errors import Conflict, HoldfastError, NotFound, OperationFailed, UsageError

if TYPE_CHECKING:
    from holdfast.agents.fleet.facts import EnvironmentFacts
    from holdfast.client.environmentfile import EnvironmentEntry

LOGIN_S: Final = 120.0  # for a user who types a password or a second factor


@click.group(cls=SectionedGroup, sections=SECTIONS["environment"])
def environment() -> None:
    """Name machines to run commands on.

    `exec --env`, `cp` and programs use these names. They are kept in environments.toml.

    \b
    Examples:
      holdfast environment add box ssh://box/srv/app
      holdfast exec --env box -- make test
    """


@environment.command("list", cls=AnswerCommand)
@context_home_option
@json_option
def list_() -> Answer:
    """List environments with what was last seen of them.

    This connects to none. A dispatcher checks those that have work, and `environment check` checks one.

    \b
    Example:
      holdfast environment list
    """
    from holdfast.agents.fleet import looking
    from holdfast.client.environments import Environments

    found = Environments.load()
    known = {name: looking.read_known(current_home(), name) for name in found.ids}
    rows = [
        (
            name,
            _describe(found.entry(name)),
            _describe_seen(known[name]),
            "default" if name == found.default else "",
        )
        for name in found.ids
    ]
    return {
        "environments": [
            {"id": id_, "address": address, "default": bool(mark), "seen": _to_json(known[id_])}
            for id_, address, _, mark in rows
        ],
        "text": ["  ".join(part for part in row if part) for row in rows],
        "table": (("name", "address", "seen", ""), rows),
    }


def _to_json(facts: "EnvironmentFacts | None") -> dict[str, object] | None:
    import msgspec

    from holdfast.dispatch.rules.fleet import count_slots

    return None if facts is None else {**msgspec.to_builtins(facts), "slots": count_slots(facts)}


def _describe_seen(facts: "EnvironmentFacts | None") -> str:
    """The state at the last check, and the time of that check."""
    from holdfast.board.rules.assign import clock
    from holdfast.dispatch.rules.fleet import count_slots

    if facts is None:
        return ""
    seen = f"seen {clock(round(facts.at * 1000))}"
    if not facts.reached:
        return f"unreachable since {clock(round(facts.since * 1000))}: {facts.error} ({seen})"
    confined = facts.unconfined and f"cannot confine: {facts.unconfined}"
    return f"{confined or f'{count_slots(facts)} slots, {facts.backend}'} ({seen})"


def _describe(entry: "EnvironmentEntry") -> str:
    """Its address, without secrets."""
    if entry.registry_url is not None:
        return f"{entry.environment_id} at {entry.registry_url}"
    if entry.url is not None:
        return entry.url.partition("?")[0]
    return entry.argv[0]


@environment.command(cls=AnswerCommand)
@click.argument("name")
@click.argument("address")
@click.option("--default", "is_default", is_flag=True, help="Use it where no environment is named.")
@click.option("--check/--no-check", default=True, help="Connect before it is written down [default: check].")
@click.option(
    "--install",
    is_flag=True,
    help="By ssh: install this version of Holdfast there if it has none or another. Without this it is asked "
    "about on a terminal, and elsewhere not done. Also for a name that has this address already.",
)
@json_option
def add(name: str, address: str, is_default: bool, check: bool, install: bool) -> Answer:
    """Name a machine, once it has been reached.

    ADDRESS is ssh://[user@]host[:port][/path], ws://… or wss://…. For ssh, the user's own ssh is used, with
    its configuration, keys, agent and jumps. Holdfast must be installed on that machine. It can be installed
    from here: with scp, for that user, into ~/.local/share/holdfast and ~/.local/bin. On a terminal ssh may
    ask for a password or a second factor once, if its configuration shares connections (ControlMaster).

    \b
    Examples:
      holdfast environment add box ssh://box/srv/app
      holdfast environment add box ssh://box/srv/app --install
      holdfast environment add lab wss://lab.example:9443
    """
    from holdfast.client import environmentedit, environmentfile
    from holdfast.client.environments import own_file
    from holdfast.client.links import ssh

    if install and not (check and address.startswith(ssh.SCHEME)):
        raise UsageError("--install is for an address of ssh, and connects to it")
    file = own_file()
    if address.startswith(("http://", "https://")):
        raise UsageError(
            "an environment behind a registry is written into the file, with its token",
            remedy=f'write into {file}: [[environments]], id = "{name}", registry_url = "{address}", '
            f'auth_bearer_token_file = "{name}.token"',
        )
    text = _read(file)
    made = None
    if text is not None:
        known = environmentfile.from_toml(text, source=str(file), folder=str(file.parent))
        same = [entry for entry in known.entries if entry.id == name]
        if same and not (install and same[0].url == address):
            raise Conflict(
                f"there is an environment {name} already", remedy=f"holdfast environment remove {name}"
            )
        made = text if same else None
    if made is None:
        made = environmentedit.add(text or "", name, address, default=is_default)
        environmentfile.from_toml(made, source=str(file), folder=str(file.parent))
    seen = _look_or_install(address, install=install) if check else {}
    if made != text:
        _write(file, made)
    first = f"added {name} to {file}" if made != text else f"{name} is ready"
    lines = [first, *_tell(seen), f"  try: holdfast exec --env {name} -- uname -a"]
    return {"id": name, "address": address, "file": str(file), **seen, "text": lines}


@environment.command("check", cls=AnswerCommand)
@click.argument("name", required=False)
@context_home_option
@json_option
def check_(name: str | None) -> Answer:
    """Connect to an environment; print what is there, or why not.

    NAME may also be an address.

    \b
    Examples:
      holdfast environment check box
      holdfast environment check ssh://box
    """
    from holdfast.client.environments import Environments

    where, entry = name, None
    if where is None or "://" not in where:
        loaded = Environments.load()
        entry = loaded.entry(where or loaded.default or "")
        where = entry.url if entry.url is not None and entry.url.startswith("ssh://") else entry.id
    seen = _look(where)
    seen |= _look_closely(entry.id) if entry is not None else {}
    lines = [f"{name or where} is ready", *_tell(seen)]
    if where.startswith("ssh://") and _find_version(seen) != __version__:
        named = entry.id if entry is not None else "NAME"
        lines.append(f"  here it is {__version__}; to have the same there:")
        lines.append(f"  try: holdfast environment add {named} {shlex.quote(where)} --install")
    return {"environment": name or where, "here": __version__, **seen, "text": lines}


@environment.command(cls=AnswerCommand)
@click.argument("name")
@click.option("--stop", is_flag=True, help="End the server that is kept over there, and all that it runs.")
@click.option(
    "--uninstall",
    is_flag=True,
    help="Remove what `environment add --install` put there; refused while something runs from it.",
)
@json_option
def remove(name: str, stop: bool, uninstall: bool) -> Answer:
    """Forget an environment.

    A server that was started over ssh goes on there until it is stopped, or has been idle for 15 minutes.

    \b
    Examples:
      holdfast environment remove box --stop
      holdfast environment remove box --stop --uninstall
    """
    from holdfast.client import environmentedit
    from holdfast.client.environments import Environments, own_file
    from holdfast.client.installing import install as installing
    from holdfast.client.links import ssh

    file = own_file()
    text = _read(file)
    if text is None:
        raise NotFound(f"there is no {file}", remedy="holdfast environment list")
    made = environmentedit.remove(text, name)
    ended, url = False, Environments.load(file).entry(name).url or ""
    if (stop or uninstall) and not url.startswith(ssh.SCHEME):
        raise UsageError("--stop and --uninstall are for environments that are reached by ssh")
    if stop:
        installing.stop(ssh.parse(url))
        ended = True
    if uninstall:
        installing.uninstall(ssh.parse(url))
    _write(file, made)
    told = [f"removed {name}", *["stopped its server"] * ended, *["uninstalled Holdfast there"] * uninstall]
    return {"id": name, "stopped": ended, "uninstalled": uninstall, "text": [", ".join(told)]}


@environment.command(cls=OneLine, hidden=True)
@click.argument("directory", default="")
@click.option("--stop", is_flag=True, help="Stop the server instead.")
def bridge(directory: str, stop: bool) -> None:
    """Join standard input and output to the server that is kept here.

    `ssh` runs this on the remote machine. Each directory has its own server, which is started if there is
    none.

    \b
    Example:
      holdfast environment bridge /srv/app
    """
    from holdfast.agents.worker.bridge import pass_on
    from holdfast.commands.daemons import keptserver

    place = keptserver.find_directory(directory)
    if stop:
        keptserver.stop(place)
        return
    with keptserver.connect(place) as sock:
        pass_on(sock)
        sys.stdout.flush()


def _look_or_install(address: str, *, install: bool) -> Answer:
    """Check an address; if the user agrees, first install Holdfast where it is missing or another version.

    Raises:
        HoldfastError: it cannot be reached, or Holdfast cannot be installed.
    """
    from holdfast.client.links import ssh

    asked = not install and not is_json() and sys.stdin.isatty() and sys.stderr.isatty()
    try:
        seen = _look(address)
    except HoldfastError:
        if not address.startswith(ssh.SCHEME) or not (install or asked):
            raise
        done = _install(address, install=install)
        if done is None:
            raise
        return done | _look(address)
    differs = address.startswith(ssh.SCHEME) and _find_version(seen) != __version__
    if install or (differs and asked):
        done = _install(address, install=install)
        return seen if done is None else done | _look(address)
    return seen


def _find_version(seen: Answer) -> str:
    """The version of Holdfast there; "" if it is another server."""
    return str(seen["version"] or "").partition("+holdfast.")[2]


def _install(address: str, *, install: bool) -> Answer | None:
    """Install Holdfast there. None: the user did not want it, or it would not help."""
    from holdfast.client.installing import install as installing
    from holdfast.client.links import ssh

    target = ssh.parse(address)
    state = installing.look(target)
    if state.holdfast == __version__ and not (install and state.name):
        return None  # the problem is another one

    def agree(lines: list[str]) -> bool:
        for line in lines:
            click.echo(printable(line), err=True)
        return install or click.confirm("Install it?", err=True)

    done = installing.install(target, state, agree)
    if done is None:
        return None
    packages = "copied from here" if not done.fetched else "some from the package index there"
    return {"installed": done.name, "packages": packages, "kept": done.kept} if done.fresh else {}


def _look_closely(name: str) -> Answer:
    """Check how much work a board could give it, and whether it can confine; kept for `environment list`."""
    import time

    from holdfast.agents.fleet import looking
    from holdfast.dispatch.rules.fleet import count_slots

    home = current_home()
    before = looking.read_known(home, name)
    facts = asyncio.run(looking.look(home, name, before, time.time()))
    looking.keep(home, name, facts)
    if not facts.reached:
        return {}
    return {
        "slots": count_slots(facts),
        "sandbox": facts.backend or f"cannot confine: {facts.unconfined}",
        "reports": "" if facts.holdfast else "holdfast is not on its PATH: workers there cannot report",
        "problems": "; ".join(facts.problems),
    }


def _look(where: str) -> Answer:
    """Connect and report what is there; on a terminal ssh may ask for a password first.

    Raises:
        HoldfastError: it cannot be reached, and why.
    """
    from holdfast.client.environments import reach
    from holdfast.client.links import ssh

    async def look() -> Answer:
        async with reach(where) as found:
            info = found.info
            return {
                "directory": info.cwd,
                "system": info.platform_os,
                "version": info.executor_version,
                "shell": info.shell.name,
            }

    try:
        return asyncio.run(look())
    except HoldfastError:
        if not where.startswith(ssh.SCHEME) or is_json() or not sys.stdin.isatty():
            raise
    argv = [*ssh.parse(where).base(interactive=True), "true"]  # ssh reads a password from the terminal itself
    quiet = subprocess.DEVNULL  # the output of that machine is discarded
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # the next attempt reports why
        subprocess.run(argv, stdin=quiet, stdout=quiet, timeout=LOGIN_S, check=False)  # noqa: S603 - ssh, by words that were checked
    return asyncio.run(look())


def _tell(seen: Answer) -> list[str]:
    return [f"  {name}: {value}" for name, value in seen.items() if value]


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UsageError(f"{file} cannot be read as text") from None
    except OSError as exc:
        raise OperationFailed(f"{file} cannot be read: {exc.strerror}") from None


def _write(file: Path, text: str) -> None:
    from holdfast.local.atomicfile import replace_file

    try:
        os.makedirs(file.parent, mode=0o700, exist_ok=True)
        replace_file(file, text.encode())
    except OSError as exc:
        raise OperationFailed(f"{file} cannot be written: {exc.strerror}") from None
