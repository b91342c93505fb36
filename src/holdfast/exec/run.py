"""One command in a sandbox, for the person at the keyboard: what `holdfast exec` does."""

import errno
import os
import sys

from holdfast.confine.childenv import scrub
from holdfast.confine.guard import hide_homes
from holdfast.confine.owner import CommandOwner
from holdfast.confine.starts import Command, Exit, Sandbox, StartFailed, plan_of, warn_of
from holdfast.errors import HoldfastError, UsageError, from_os_error
from holdfast.exec import outcome
from holdfast.exec.outcome import Ending, ExecFailure, Explained, PathAnswer, Planned, Withheld
from holdfast.exec.wish import Preset, Wish
from holdfast.light import TYPE_CHECKING, Mapping, Sequence, replace, signal, value
from holdfast.local.loop import Loop
from holdfast.local.relay import Course, Streams, Tail, occupy_standard_descriptors, open_streams
from holdfast.sandbox.plan.resolve import locate, make_granted, trace
from holdfast.sandbox.plan.select import Choice
from holdfast.sandbox.policy import policy
from holdfast.sandbox.policy.credentials import credentials, find_secrets
from holdfast.sandbox.policy.hostwish import is_inspected
from holdfast.sandbox.policy.paths import (
    absolute,
    grantable,
    is_file_to_make,
    is_pattern,
    join,
    name,
    parent,
    within,
)
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Network, Policy, bind

if TYPE_CHECKING:
    from holdfast.confine.keys import KeptKeys
    from holdfast.exec.asking import TerminalAnswerer
    from holdfast.sandbox.launcher.spare import EarlyStart
    from holdfast.sandbox.limits import Limits

_MAX_TAIL = 64 * 1024  # bytes at the end of the output that are searched for a reason
_SIGSYS = 128 + signal.SIGSYS


@value
class ResolvedWish:
    """The wish, resolved on this machine."""

    cwd: str
    environ: dict[str, str]
    bound: BoundPolicy
    choice: Choice
    loopback_ports: tuple[int, ...]
    withheld: Withheld
    limits: "Limits | None" = None
    missing: tuple[str, ...] = ()  # granted paths to create before the command is planned
    keys: "KeptKeys | None" = None  # kept outside

    def make_missing(self) -> None:
        """Create paths that are granted and missing, accessible to their owner only.

        Raises:
            UsageError: one cannot be created.
        """
        for path in self.missing:
            try:
                make_granted(path)
            except OSError as exc:
                raise UsageError(
                    f"--allow-write {path}: cannot make it: {exc.strerror}",
                    remedy="make its directory, or allow another",
                ) from None


# --- what the command line calls


def execute(wish: Wish, argv: Sequence[str], early: "EarlyStart | None" = None) -> Ending:
    """Run a command with our standard streams; the ending holds any failure."""
    occupy_standard_descriptors()
    try:
        if not argv or not argv[0]:
            raise UsageError("no command given: holdfast exec [OPTIONS] -- COMMAND")
        scene = scene_of(wish, os.environ, argv)
        scene.make_missing()
        try:
            if scene.keys is not None:
                scene.keys.make_folder()
            return replace(_execute(scene, argv, early, watch=wish.watch), withheld=scene.withheld)
        finally:
            if scene.keys is not None:
                scene.keys.forget()
    except HoldfastError as exc:
        return outcome.build_failure(exc)
    except OSError as exc:
        return outcome.build_failure(from_os_error(exc))
    except KeyboardInterrupt:
        return Ending(128 + signal.SIGINT)


def plan(wish: Wish) -> Planned:
    """What would be done, and what would enforce it.

    Raises:
        HoldfastError: no command can be run like that.
    """
    import asyncio

    return asyncio.run(_plan(scene_of(wish, os.environ)))


def explain(wish: Wish, paths: Sequence[str]) -> Explained:
    """Which rules decide about these paths.

    Raises:
        HoldfastError: the policy is invalid.
    """
    from holdfast.sandbox.plan.planner import settle
    from holdfast.sandbox.plan.resolve import look

    scene = scene_of(wish, os.environ)
    bound = settle(scene.bound, look(scene.bound, scene.cwd))
    return Explained([_answer(absolute(path, _here()), bound) for path in paths])


# --- the policy


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the current directory does not exist any more") from None


def scene_of(wish: Wish, environ: Mapping[str, str], argv: Sequence[str] | None = None) -> ResolvedWish:
    """Resolve a wish, here and now; keys that stay outside are read only for a command that is to run.

    Raises:
        UsageError: it is invalid.
    """
    here = _here()
    cwd = here if wish.cwd is None else absolute(wish.cwd, here)
    if not os.path.isdir(cwd):
        raise UsageError(f"{cwd} is not a directory")
    policy, limits = _policy(wish, here)
    env = scrub(environ)
    withheld = _withhold(wish, here, cwd, env) if policy.rules is not None else Withheld()
    env = {name: value for name, value in env.items() if name not in withheld.variables}
    for path in withheld.paths:
        policy = policy.deny(path)
    keys = None
    if policy.hosts.secrets or any(map(is_inspected, policy.hosts.allow)):
        policy, env, withheld, keys = _keep_outside(policy, env, withheld, environ, argv)
    if wish.cwd is not None:
        env["PWD"] = cwd
    where = locate(cwd, (cwd,), env)
    missing = []
    base = bind(policy, where) if wish.allow_write else None
    for asked in wish.allow_write:
        path = absolute(asked, here)
        # Where its directory is writable, allowing a missing path means that it may be created.
        if base and not (os.path.lexists(path) or base.explain(parent(path), Access.WRITE).allowed):
            missing.append(f"{path}/" if asked.endswith("/") else path)
        policy = policy.allow_write(path)
    ports = _ports(wish.loopback_ports)
    if policy.hosts.presets:
        policy = _find_presets(policy, bind(policy, where), environ, withheld)
    bound = hide_homes(bind(policy, where), environ)
    return ResolvedWish(cwd, env, bound, wish.choice, ports, withheld, limits, tuple(missing), keys)


def _keep_outside(
    policy: Policy,
    env: dict[str, str],
    withheld: Withheld,
    environ: Mapping[str, str],
    argv: Sequence[str] | None,
) -> "tuple[Policy, dict[str, str], Withheld, KeptKeys | None]":
    """Keep keys outside: return the policy, the environment, what else is withheld, and the keys.

    Raises:
        UsageError: a key cannot be read, or the command would get it in another way.
    """
    from holdfast.confine.keys import find_files, take_keys

    if policy.rules is None and policy.hosts.secrets:
        raise UsageError("--secret keeps a key from a command that --full-access lets read everything")
    for path in find_files(policy.hosts.secrets):
        for one in dict.fromkeys((path, os.path.realpath(path))):
            policy = policy.deny(one)
    if argv is None:
        return policy, env, withheld, None
    keys = take_keys(policy.hosts.secrets, environ)
    keys = replace(keys, inspects=any(map(is_inspected, policy.hosts.allow)))
    if policy.rules is not None:
        policy = policy.allow_read(keys.folder)
    names = {key.name for key in keys.keys}
    if (given := next(filter(None, map(keys.find_in, argv)), None)) is not None:
        raise UsageError(
            f"the command itself has the key of ${given}",
            remedy="quote it, so that a shell inside reads the variable",
        )
    known = {name for name, value in env.items() if name not in names and keys.find_in(value)}
    kept = {name: value for name, value in env.items() if name not in known} | keys.variables
    hidden = tuple(name for name in withheld.variables if name not in names)
    return policy, kept, replace(withheld, variables=(*hidden, *sorted(known))), keys


def _withhold(wish: Wish, here: str, cwd: str, environ: Mapping[str, str]) -> Withheld:
    """Credentials that exist and that the user did not grant by name; the command's directory is granted."""
    if wish.preset is Preset.FULL_ACCESS and wish.profile is None:
        return Withheld()
    home = absolute(os.path.expanduser("~"), here)
    granted = [absolute(path, here) for path in (*wish.allow_read, *wish.allow_write)]
    granted = [path for path in granted if not within(home, path)]
    found = () if wish.allow_credentials else credentials(home, granted=granted)
    paths = [path for path in found if os.path.lexists(path) and not within(cwd, path)]
    return Withheld(tuple(paths), tuple(set(find_secrets(environ)).difference(wish.pass_env)))


def _ports(asked: Sequence[int]) -> tuple[int, ...]:
    if not asked:
        return ()
    from holdfast.confine.permissions import loopback_ports
    from holdfast.local.listeners import refuse_own_ports

    ports = loopback_ports(asked)
    refuse_own_ports(ports)
    return ports


def _policy(wish: Wish, here: str) -> "tuple[Policy, Limits | None]":
    """The policy without `allow_write`, and the limits on resources."""
    limits = wish.limits
    if wish.profile is None:
        policy = _preset(wish.preset)
    else:
        policy, written = _load(wish.profile)
        limits = limits.over(written) if limits and written else limits or written
    if wish.network and wish.loopback_ports:
        raise UsageError("--loopback-port says what is left of the network when it is off, not on")
    if wish.network is not None or wish.loopback_ports:
        policy = policy.with_network(Network.ON if wish.network else Network.OFF)
    policy = _with_hosts(policy, wish)
    for path in wish.allow_read:
        policy = policy.allow_read(absolute(path, here))
    for path in (absolute(path, here) for path in wish.allow_socket):
        if not _is_socket(path):
            raise UsageError(f"--allow-socket {path}: there is no socket; start its service first")
        policy = policy.allow_socket(path)
    if wish.deny:
        from holdfast.sandbox.policy import profile
    for path in wish.deny:
        if is_pattern(path) and not os.path.lexists(join(here, path)):
            policy = policy.deny_glob(path if path.startswith("/") else join(profile.escape(here), path))
        else:
            policy = policy.deny(absolute(path, here))
    return policy, limits


def _with_hosts(policy: Policy, wish: Wish) -> Policy:
    """Add the hosts that are reached by name."""
    named = wish.allow_host or wish.allow_net or wish.secrets or wish.ask_network
    if wish.network and (named or policy.hosts.allow or policy.hosts.presets):
        option = "--ask-network" if wish.ask_network else "--allow-host"
        raise UsageError(f"{option} says what is left of the network when it is off, not on")
    for rule in wish.allow_host:
        policy = policy.allow_host(rule)
    for rule in wish.deny_host:
        policy = policy.deny_host(rule)
    for text in wish.secrets:
        policy = policy.keep_secret(text)
    for preset in wish.allow_net:
        policy = policy.allow_net(preset)
    for limit in wish.net_limit:
        policy = policy.limit_net(limit)
    if wish.allow_private:
        policy = replace(policy, hosts=replace(policy.hosts, private=True))
    if wish.ask_network:
        policy = policy.ask_network()
    about = wish.deny_host or wish.allow_private or wish.net_limit
    if about and not (policy.hosts.reaches_any or policy.hosts.presets):
        raise UsageError(
            "--deny-host, --net-limit and --allow-private are about hosts that --allow-host allows",
            remedy="allow a host by its name: --allow-host api.example.com",
        )
    return policy


def _find_presets(
    policy: Policy, bound: BoundPolicy, environ: Mapping[str, str], withheld: Withheld
) -> Policy:
    """Add the hosts that clients' settings name; ignore settings that the command could have written.

    Raises:
        UsageError: a client is unknown, or its settings name no host.
    """
    from holdfast.egress.clients.surroundings import read_presets

    found = read_presets(policy, bound, environ)
    hidden = {
        f", from {path}": f"; withheld from the command (--allow-read {path})" for path in withheld.paths
    }
    told = [origin + hidden.get(origin[origin.rfind(", from ") :], "") for origin in found.hosts.origins]
    return replace(found, hosts=replace(found.hosts, origins=tuple(told)))


def _is_socket(path: str) -> bool:
    import stat

    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _preset(preset: Preset) -> Policy:
    match preset:
        case Preset.READ_ONLY:
            return policy.read_only()
        case Preset.WORKSPACE_WRITE:
            return policy.workspace_write()
        case Preset.FULL_ACCESS:
            return Policy(None, Network.ON)  # unlike a disabled sandbox, the network can be taken away


def _load(path: str) -> "tuple[Policy, Limits | None]":
    import tomllib

    from holdfast.sandbox.policy import profile

    try:
        with open(path, "rb") as file:
            tree = tomllib.load(file)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path}: not a TOML file: {exc}") from None
    policy = profile.policy_of(tree, source=path, home=os.path.expanduser("~"))
    return policy, profile.limits_of(tree, source=path)


def _answer(path: str, bound: BoundPolicy) -> PathAnswer:
    real = trace(path).real
    write, above = bound.explain(real, Access.WRITE), real
    if not bound.explain(parent(real), Access.WRITE).allowed:
        folder = name(real).startswith(".")
        above = grantable(real, os.path.lexists, folder=folder, home=os.path.expanduser("~"))
    if above != real and write.grant is not None:
        write = replace(write, grant=bound.explain(above, Access.WRITE).grant)
    return PathAnswer(path, real, bound.explain(real, Access.READ), write)


# --- the run


async def _plan(scene: ResolvedWish) -> Planned:
    from holdfast.server.executor import Executor

    executor = Executor(scene.environ, choice=scene.choice)
    executor.open()
    try:
        sandbox = await executor.sandboxes.confine(
            scene.bound, cwd=scene.cwd, loopback_ports=scene.loopback_ports
        )
    finally:
        await executor.aclose()
    making = [_describe_making(path) for path in scene.missing]
    if sandbox.confinement is not None:
        return Planned([*making, *sandbox.confinement.plan.describe()], sandbox.enforcement)
    made, _ = plan_of(scene.bound, scene.cwd)  # nothing has to be enforced
    return Planned([*making, *made.describe()], sandbox.enforcement)


def _describe_making(path: str) -> str:
    kind = "file" if is_file_to_make(path) else "directory"
    return f"make the {kind} {path.rstrip('/')}, which is missing, and let it be written"


def _execute(scene: ResolvedWish, argv: Sequence[str], early: "EarlyStart | None", *, watch: bool) -> Ending:
    for warning in warn_of(scene.bound.sockets):
        sys.stderr.write(f"holdfast: warning: {warning}\n")
    if scene.keys is not None and scene.keys.replaced:
        replaced = ", ".join(scene.keys.replaced)
        sys.stderr.write(f"holdfast: {replaced} inside: what they name outside, and a certificate of ours\n")
    command = Command(tuple(argv), argv[0], scene.cwd, scene.environ)
    loop = Loop()
    owner = CommandOwner(loop, scene.choice, early)
    course = Course(loop, owner)
    tail = Tail(_MAX_TAIL)
    answerer: TerminalAnswerer | None = None
    try:
        with open_streams(loop) as streams:
            course.terminal, course.is_job = streams.terminal, streams.tty
            if scene.bound.hosts.ask_s:
                answerer = _make_answerer(loop, streams, owner)
            try:
                sandbox = owner.run(
                    command,
                    scene.bound,
                    scene.loopback_ports,
                    streams,
                    watch=watch,
                    given_up=lambda: course.over,
                    stopped=course.on_stopped,
                    limits=scene.limits,
                    keys=scene.keys,
                    answerer=answerer,
                )
            except StartFailed as exc:
                return _not_started(exc, command, owner.sandbox)
            except KeyboardInterrupt:
                return Ending(128 + (course.stopped_by or signal.SIGINT))
            streams.join(tail, lambda: course.signal(signal.SIGHUP), course.stop)
            course.begin()
            loop.run_until(lambda: owner.end is not None)
            if answerer is not None:
                answerer.close()
            streams.stop_input()
            course.end()
            # A process that outlived the command still holds its outputs, which would then never end.
            owner.end_everything()
            loop.run_until(lambda: course.over)
    finally:
        owner.end_everything()
    if owner.end is None:
        raise AssertionError("waited for it")
    ending = _judge(owner, owner.end, sandbox, tail.read(), scene.cwd)
    return ending if streams.unwritten is None else outcome.lose_output(ending, streams.unwritten)


def _make_answerer(loop: Loop, streams: Streams, owner: CommandOwner) -> "TerminalAnswerer":
    """An answerer that asks at our terminal, if we have one."""
    from holdfast.exec.asking import TerminalAnswerer

    def release() -> None:
        streams.release()
        if streams.tty:
            owner.pass_on(signal.SIGWINCH)  # a full-screen program redraws its screen

    dumb = os.environ.get("TERM", "dumb") == "dumb"
    return TerminalAnswerer(loop, streams.hold, release, dumb=dumb)


def _judge(owner: CommandOwner, end: Exit, sandbox: Sandbox, output: bytes, cwd: str) -> Ending:
    """Determine the ending. Searching an output for a reason takes longer than most commands run."""
    created = sandbox.held is not None and sandbox.held.have_appeared()
    code = end.code
    if end.reached is not None:
        from holdfast.sandbox import limits

        code, output = limits.exit_code(end.reached, code), b""  # the reason is known
    traffic = owner.traffic
    told = bool(output or end.code == _SIGSYS or (traffic and traffic["refused"]))
    if owner.watched is None and not created and (end.code == 0 or not told):
        return Ending(code, sandbox.enforcement, usage=end, reached=end.reached, traffic=traffic)
    from holdfast.confine.verdict import judge_of, prove, prove_by_name

    judge = judge_of(sandbox, cwd)
    denial = None if judge is None else judge(end.code, output).denial
    seen = owner.read_denials()
    if end.code != 0:
        denial = prove_by_name(denial, traffic)
    by_name = denial is not None and denial.kind == "network" and denial.witnessed
    proven = denial if by_name or end.code == 0 else prove(denial, seen)
    return Ending(
        code,
        sandbox.enforcement,
        proven,
        end,
        watch=owner.watched,
        denials=seen,
        unconfirmed=owner.count_unconfirmed(),
        reached=end.reached,
        traffic=traffic,
    )


def _not_started(exc: StartFailed, command: Command, sandbox: Sandbox) -> Ending:
    """Report a failed start as a shell and env(1) do; also report if the policy hides the program."""
    import shutil

    from holdfast.confine.verdict import find_hidden
    from holdfast.sandbox.reasons.denials import Denial

    missing = exc.errno == errno.ENOENT
    code = outcome.NOT_FOUND if missing else outcome.NOT_EXECUTABLE
    failure = ExecFailure(f"{command.program}: {'command not found' if missing else os.strerror(exc.errno)}")
    denial = None
    search = command.env.get("PATH", os.defpath)
    found = shutil.which(command.program, path=search)
    if found is not None and sandbox.bound is not None:
        hidden = find_hidden(sandbox.bound, absolute(found, command.cwd), search)
        if hidden is not None:
            path, decision = hidden
            denial = Denial(
                *("filesystem", path, None, "read", decision.why, decision.grant, 1.0),
                os.strerror(exc.errno),
                witnessed=True,
            )
    return Ending(code, sandbox.enforcement, denial, failure=failure)
