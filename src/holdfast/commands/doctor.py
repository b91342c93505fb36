"""`holdfast doctor`: parse, call, print."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from holdfast.commands.exec import with_limits
from holdfast.commands.options import ExecLimits
from holdfast.commands.output import OneLine, fail, pasteable, printable
from holdfast.errors import HoldfastError, NotFound, OperationFailed
from holdfast.local.linux import require_linux

if TYPE_CHECKING:
    from holdfast.doctor.assertion.assertion import AssertionReport
    from holdfast.doctor.facts.rules import Finding

CHUNK_BYTES: Final = 64 * 1024  # of a log at a time: the size of a pipe, and memory stays small
_CANNOT_TELL: Final = 2
_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)
_SIGNS: Final = {
    "OK": ("ok", "green"),
    "NOTE": ("note", "blue"),
    "DEGRADED": ("weak", "yellow"),
    "BROKEN": ("FAIL", "red"),
}


_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema."
)


@click.group(invoke_without_command=True)
@_json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check what works on this machine, and say what to type.

    Exit code 0: all good; 1: something is weaker than it could be; 2: something does not work.

    \b
    Examples:
      holdfast doctor
      holdfast doctor explain < agent.log
    """
    if context.invoked_subcommand != "explain":
        _require_linux()
    if context.invoked_subcommand is not None:
        return
    from holdfast.agents.catalog.known import read_known
    from holdfast.agents.installed import describe_installed
    from holdfast.doctor.facts import facts, rules

    known = read_known()
    look = facts.gather(described=describe_installed(known), invalid=known.invalid)
    found = rules.findings(asyncio.run(look))
    if as_json:
        tree = {"schemaVersion": rules.SCHEMA_VERSION, "findings": [finding.report() for finding in found]}
        click.echo(json.dumps(tree))
    else:
        _show_findings(found)
    sys.exit(rules.exit_code(found))


def _require_linux() -> None:
    try:
        require_linux("holdfast doctor", "the same on the Linux machine; here: holdfast doctor explain FILE")
    except HoldfastError as exc:
        fail(exc, _CANNOT_TELL)


def _print(report: Mapping[str, object], lines: Iterable[str], *, as_json: bool) -> None:
    for line in [json.dumps(report)] if as_json else map(printable, lines):
        click.echo(line)


def _show_findings(found: "Iterable[Finding]") -> None:
    plain = bool(os.environ.get("NO_COLOR"))
    for finding in found:
        word, colour = _SIGNS[finding.severity.name]
        line = f"{click.style(f'{word:>4}', fg=colour)}  {finding.title}"
        click.echo(line, color=False if plain else None)
        if finding.severity and finding.evidence:
            click.echo(f"      seen: {finding.evidence}")
        if finding.remedy:
            click.echo(f"      try: {pasteable(finding.remedy)}")


@doctor.command(cls=OneLine)
@click.argument("file", default="-")
@click.option("--here", is_flag=True, help="The text comes from this machine: also check the causes here.")
@_json_option
def explain(file: str, here: bool, as_json: bool) -> None:
    """Explain the causes of errors in a log.

    The text comes from FILE or from standard input.

    Any size and any encoding. Secrets that are recognised by their shape are not repeated.

    Exit codes: 0 a cause was recognised; 1 none was; 3 FILE does not exist; 71 it cannot be read.

    \b
    Examples:
      holdfast doctor explain agent.log
      npm test 2>&1 | holdfast doctor explain
    """
    from holdfast.doctor.explain import explanation

    reading = explanation.Reading()
    try:
        with _open_log(file) as log:
            while data := log.read(CHUNK_BYTES):
                reading.feed(data)
    except OSError as exc:
        raise _unreadable(file, exc) from None
    found = reading.causes()
    if here and found:
        from holdfast.doctor.explain.explanation import compare_with_host
        from holdfast.sandbox.host.probes import probe

        found = compare_with_host(found, asyncio.run(probe()))
    _print(explanation.report(found), explanation.lines(found), as_json=as_json)
    sys.exit(0 if found else 1)


def _open_log(file: str) -> BinaryIO:
    if file != "-":
        return open(file, "rb", buffering=0)
    if sys.stdin.isatty():
        click.echo("reading what you type or paste; end with Ctrl-D", err=True)
    return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)


def _unreadable(file: str, exc: OSError) -> HoldfastError:
    cls = NotFound if isinstance(exc, FileNotFoundError) else OperationFailed
    remedy = "holdfast doctor explain FILE, or pipe the text into holdfast doctor explain -"
    return cls(f"cannot read {file}: {exc.strerror}", remedy=remedy)


@doctor.command("assert", cls=OneLine)
@click.option(
    "--agent",
    type=click.Choice(["codex", "holdfast"]),
    help="The agent to try [default: codex if found, else holdfast].",
)
@click.option("--codex", "binary", metavar="PATH", type=click.Path(path_type=Path), help="The codex program.")
@click.option("--home", type=_DIRECTORY, help="Its CODEX_HOME, which is only read.  [default: as Codex]")
@click.option("--cwd", type=_DIRECTORY, help="Where the agent works.  [default: here]")
@click.option(
    "--expect",
    type=click.Choice(["confined", "read-only", "workspace-write", "network", "full-access"]),
    default="confined",
    show_default=True,
    help="What holds besides the claims below: confined is no write outside or to its configuration; "
    "network is workspace-write with the network on.",
)
@click.option(
    "--write", metavar="PATH", multiple=True, help="Claim that commands can write PATH. Can be repeated."
)
@click.option(
    "--deny-write",
    metavar="PATH",
    multiple=True,
    help="Claim that commands cannot write PATH. Can be repeated.",
)
@click.option(
    "--network",
    metavar="URL",
    multiple=True,
    help="Claim that commands can reach URL: http, https or tcp://HOST:PORT.",
)
@click.option(
    "--status",
    "statuses",
    metavar="CODE",
    multiple=True,
    help="What an http(s) URL of --network must answer with: 204, 4xx, any. Can be repeated.  [default: 2xx]",
)
@click.option(
    "--deny-network",
    metavar="URL",
    multiple=True,
    help="Claim that commands cannot reach URL. Can be repeated.",
)
@click.option(
    "-c", "overrides", metavar="KEY=VALUE", multiple=True, help="A setting that codex is started with."
)
@click.option("--profile", metavar="FILE", help="Use the limits in FILE, as `holdfast exec --profile` does.")
@click.option("--again", is_flag=True, help="Run `codex exec` again, even if it passed since the last boot.")
@click.option(
    "--wait",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, 86400),
    default=0,
    help="Try again until it passes or this time is over.",
)
@_json_option
def assert_(
    agent: str | None,
    binary: Path | None,
    home: Path | None,
    cwd: Path | None,
    write: tuple[str, ...],
    deny_write: tuple[str, ...],
    network: tuple[str, ...],
    deny_network: tuple[str, ...],
    statuses: tuple[str, ...],
    seconds: float,
    as_json: bool,
    **wished: Any,
) -> None:
    """Prove that an agent runs commands and that denials hold.

    A command runs the way the agent would run it, without a model and without the network, and reports what
    it could access. The same is tried outside: an access that fails there as well proves nothing.

    Exit code 0: all claims hold; 1: a claim does not hold; 2: that could not be judged.

    \b
    Examples:
      holdfast doctor assert
      holdfast doctor assert --agent codex
    """
    from holdfast.doctor.assertion import assertion, claims

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # to remove temporary files
    try:
        found = assertion.wait(
            assertion.AssertOrder(
                cwd=Path(os.path.abspath(cwd or Path.cwd())),
                home=Path(os.path.abspath(home or os.environ.get("CODEX_HOME") or Path.home() / ".codex")),
                binary=assertion.find(agent, binary),
                asked=claims.parse_claims(
                    write=tuple(map(os.path.abspath, write)),
                    deny_write=tuple(map(os.path.abspath, deny_write)),
                    network=network,
                    deny_network=deny_network,
                    statuses=statuses,
                ),
                **wished,
            ),
            seconds,
            lambda text: click.echo(f"holdfast: {printable(text)}", err=True),
        )
    except HoldfastError as exc:
        fail(exc, _CANNOT_TELL)
    _print(found.report(), _assertion_lines(found), as_json=as_json)
    sys.exit(claims.EXIT[found.verdict])


def _assertion_lines(found: "AssertionReport") -> list[str]:
    who = " ".join(filter(None, (found.agent, found.version, f"({found.binary})" if found.binary else "")))
    held = sum(one.holds for one in found.judged)
    lines = [f"{found.verdict}: {who}: {held} of {len(found.judged)} claims hold"]
    lines += [f"  {step.route}: {step.status}{f', {step.note}' if step.note else ''}" for step in found.steps]
    for one in found.judged:
        sign = "ok" if one.holds else "????" if one.got == "unknown" else "FAIL"
        route = f" [{one.route}]" if one.route else ""
        lines.append(f"{sign:>4}  {one.claim}: {one.got}, wanted {one.wanted}{route}")
        if not one.holds:
            lines.append(f"      seen: {one.evidence}")
            lines += [f"      try: {one.remedy}"] if one.remedy else []
    for cause in found.causes:
        lines.append(f"{cause['fingerprint']} ({cause['layer']}): {cause['cause']}")
        lines.append(f"      try: {cause['remedy']}")
    return lines


@doctor.command(cls=OneLine, context_settings={"allow_interspersed_args": False})
@with_limits
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="End each run after this time.",
)
@click.option("--verbose", is_flag=True, help="Name every circumstance that differs, not only the outcome.")
@_json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def compare(
    limits: ExecLimits, timeout_s: float, verbose: bool, as_json: bool, command: tuple[str, ...]
) -> None:
    """Run a command plain and confined, and show what differs.

    THE COMMAND RUNS TWICE, with empty standard input: first without a sandbox, then with the limits that the
    options set, as in `holdfast exec`. The second run sees what the first one left behind. Before that its
    surroundings are compared: files, network, environment, identity, terminal, limits.

    Exit code 0: its surroundings and its behaviour were the same; 1: something differs; 2: that cannot be
    judged, or no command was run.

    \b
    Example:
      holdfast doctor compare -- npm test
    """
    from holdfast.doctor.compare import compare as edge
    from holdfast.doctor.compare import equivalence

    if command:
        click.echo("holdfast: the command runs twice: first WITHOUT a sandbox, then confined", err=True)
    try:
        done = edge.run(limits.wish(), command, timeout_s=timeout_s)
    except HoldfastError as exc:
        fail(exc, _CANNOT_TELL)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    lines = [*equivalence.lines(done.found, verbose=verbose), f"confined by {done.enforcement.backend}"]
    _print(done.report(), lines, as_json=as_json)
    sys.exit(done.found.exit_code)


class _Progress:
    """A progress line for each backend: printed at its end, and on a terminal also at each step."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def begin(self, name: str, total: int) -> None:
        self._name, self._total, self._made, self._escaped = name, total, 0, 0

    def step(self, *, escaped: bool) -> None:
        self._made += 1
        self._escaped += escaped
        if self._live:
            self._show(nl=False)

    def end(self) -> None:
        self._show(nl=True)

    def _show(self, *, nl: bool) -> None:
        wrong = f", {self._escaped} not as they should be" if self._escaped else ""
        text = f"{self._name}: {self._made} of {self._total} attempts{wrong}"
        click.echo(f"\r{text}" if self._live else text, nl=nl, err=True)


@doctor.command(cls=OneLine)
@click.option(
    "--backend",
    type=click.Choice(["namespaces", "bwrap", "landlock"]),
    help="Try only this backend.  [default: every one that works here]",
)
@click.option("--user", metavar="NAME", help="Also try as this user; needs root.")
@click.option(
    "--only",
    metavar="PATTERN",
    multiple=True,
    help="Try only attempts or guarantees of this name, such as use-*. Can be repeated.",
)
@_json_option
def selfcheck(backend: str | None, user: str | None, only: tuple[str, ...], as_json: bool) -> None:
    """Try every known way out of the sandbox.

    Makes a few hundred attempts from inside, with each backend, on bait of its own, and prints which
    guarantees hold. Takes less than a minute for each backend, and leaves nothing behind.

    Exit code 0: everything holds as declared; 1: an attempt got out, or something does not work inside; 2: no
    attempt could be made, or not with the given --backend and --user.

    \b
    Examples:
      holdfast doctor selfcheck
      sudo holdfast doctor selfcheck --user me
    """
    from holdfast.doctor.escape import checkup, scorecard
    from holdfast.sandbox.plan.select import Backend

    try:
        attempts = scorecard.choose_attempts(only)
        columns = checkup.check(None if backend is None else Backend(backend), user, attempts, _Progress())
    except checkup.Interrupted as exc:
        sys.exit(128 + exc.signum)
    _print(scorecard.report(columns), scorecard.lines(columns), as_json=as_json)
    sys.exit(scorecard.exit_code(columns))
