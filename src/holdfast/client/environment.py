"""The place where commands run: connect to a server, start processes there, use its files and its network."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.client.connection import Dialer
from holdfast.client.events.ordering import convert, decode_page
from holdfast.client.events.result import MAX_OUTPUT_BYTES, Result
from holdfast.client.links import ssh
from holdfast.client.links.ssh import SshTarget
from holdfast.client.links.target import parse_target
from holdfast.client.networkfilter import DECIDE_S, Decide, NetworkFilter
from holdfast.client.presets import find_presets
from holdfast.client.process import Process
from holdfast.client.recovery import LinkState
from holdfast.client.session import ClientSession
from holdfast.egress.keys.sources import find_file, read_key
from holdfast.errors import ConnectionLost, HoldfastError, InvalidRequest, RemoteProtocolError, UsageError
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.secretwish import parse_secret
from holdfast.wire.environment import EnvironmentInfo
from holdfast.wire.paths import PathUri, RemotePath, to_native, to_uri
from holdfast.wire.processes import CommandExecutor, EnvPolicy, ProcessLimits, ReadParams, StartParams

if TYPE_CHECKING:
    from holdfast.client.files import Files
    from holdfast.client.http import Http
    from holdfast.client.policy import Policy

CONNECT_S: Final = 10.0
INITIALIZE_S: Final = 10.0
STATUS_S: Final = 10.0

# What a command inherits by default: enough to find programs and a home, none of the secrets.
_CORE: Final = EnvPolicy(inherit="core", ignore_default_excludes=False, exclude=[], set={}, include_only=[])


class _Status(msgspec.Struct):
    status: str


class Environment:
    """A session with a server. Create it with `connect`, or with `open` and end it with `aclose`."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @classmethod
    async def open(
        cls,
        address: str | Sequence[str],
        *,
        token: str | None = None,
        connect_timeout_s: float = CONNECT_S,
        initialize_timeout_s: float = INITIALIZE_S,
        resume: str | None = None,
    ) -> "Environment":
        """Connect; see `connect`. `resume` is the `session_id` of a session that was left with `leave`.

        Raises:
            InvalidRequest: that session does not exist or has ended.
            SessionAttached: another connection holds it; try again shortly.
        """
        target = parse_target(address, token)
        if isinstance(target, SshTarget) and initialize_timeout_s == INITIALIZE_S:
            initialize_timeout_s = ssh.INITIALIZE_S
        session = ClientSession(Dialer(target, connect_timeout_s, initialize_timeout_s))
        await session.open(resume)
        return cls(session)

    async def aclose(self) -> None:
        """End every process that still runs in this session, and the session."""
        await self._session.aclose()

    async def leave(self) -> None:
        """Disconnect and leave everything running, for as long as the server keeps a detached session."""
        await self._session.aclose(leave=True)

    @property
    def session_id(self) -> str:
        """The id with which `open(resume=…)` takes the session over."""
        if self._session.session_id is None:
            raise AssertionError("an environment is made from an open session")
        return self._session.session_id

    @property
    def info(self) -> EnvironmentInfo:
        """What the server reports about itself; a capability that it does not name is missing."""
        return self._session.info

    @property
    def state(self) -> LinkState:
        """Whether calls are sent now, wait for the next link, or fail."""
        return self._session.state

    @property
    def failure(self) -> HoldfastError | None:
        """Why the session is over, once it is."""
        return self._session.failure

    async def status(self) -> str:
        """Return the status that the server reports: "ready".

        Raises:
            ConnectionLost: no link is up right now; this does not wait for one.
        """
        answer = await self._session.call_now("environment/status", None, timeout_s=STATUS_S)
        return convert(answer, _Status).status

    @functools.cached_property
    def files(self) -> "Files":
        """The other machine's files."""
        from holdfast.client.files import Files

        return Files(self._session, info=self.info)

    @functools.cached_property
    def http(self) -> "Http":
        """HTTP requests made from the other machine."""
        from holdfast.client.http import Http

        return Http(self._session)

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: RemotePath | None = None,
        env: Mapping[str, str] | None = None,
        policy: "Policy | None" = None,
        tty: bool = False,
        stdin: bool = False,
        arg0: str | None = None,
        more_env: Mapping[str, str] | None = None,
        process_id: str | None = None,
        watch: bool = False,
        limits: Limits | None = None,
        commands: CommandExecutor | None = None,
        network: NetworkFilter | None = None,
        decide: Decide | None = None,
    ) -> Process:
        """Start a command.

        `cwd` is a path of the other machine, by default the server's working directory. Without `env` the
        command inherits PATH, HOME, the locale and the like from the server. With `env` its environment is
        exactly that. `more_env` is added in both cases. `stdin` keeps its standard input open for `write`; a
        `tty` always has one. `adopt` finds the process by its `process_id`, which the caller may choose. With
        `watch` the process's `denials` report what its sandbox refuses, as it happens; its `watch` says
        whether this works or why not. `limits` bound what the command and all its descendants use together.
        `commands` is an executor for the commands that the process wants to run outside of its own sandbox.
        With `network` the command reaches those hosts and no others, whatever the policy says about the
        network. `decide` is called about hosts if the policy demands it (`Policy.ask_network`); without
        `decide` such hosts are refused.

        Raises:
            UsageError: a network filter is given without a policy that confines; or a key that stays outside
                cannot be read; or `decide` is given without a policy that asks.
            InvalidRequest: limits are given and this server does not support them; or it supports no executor
                for commands, no network filter, no keys outside, or no questions about hosts.
            OperationFailed: the program could not be started.
            SandboxUnavailable: the policy cannot be enforced there; nothing was run.
            ConnectionLost: the link died during the call. If the command was started it will be ended.
        """
        where = self._directory(cwd)
        limits = _limits(limits, policy)
        if policy is not None and (policy.keys or policy.wish.hosts.secrets):
            policy = await self._take_keys(policy)
        if limits is not None and not self.info.capabilities.holdfast_limits:
            raise InvalidRequest(
                "this server cannot limit what a command uses", remedy="leave the limits out, or update it"
            )
        if commands is not None and not self.info.capabilities.holdfast_commands:
            raise InvalidRequest("this server runs no commands for a process", remedy="update it")
        if network is not None:
            self._check_filter(network, policy)
        policy, asked = self._check_asking(policy, decide, network)
        native = to_native(where.uri)
        if policy is not None and policy.confines and policy.wish.hosts.presets:
            policy = find_presets(policy, native)
        params = StartParams(
            process_id=process_id or self._session.new_process_id(),
            argv=_words(argv),
            cwd=where,
            env={**(env or {}), **(more_env or {})},
            tty=tty,
            pipe_stdin=stdin,
            arg0=arg0,
            env_policy=_CORE if env is None else None,
            sandbox=policy.context(native) if policy is not None and policy.confines else None,
            watch=watch,
            limits=None if limits is None else _encode_limits(limits),
            commands=commands,
            enforce_managed_network=network is not None,
            network_proxy=None if network is None else network.settings(),
            secrets=[] if policy is None else list(policy.keys),
        )
        await self._session.until_ended(params.process_id)
        process = Process(self._session, params.process_id, tty=tty, watch=watch)
        self._session.add_route(process)
        if asked is not None:
            self._session.deciders.add(params.process_id, asked)
        try:
            process.started(await self._session.call("process/start", params))
        except (ConnectionLost, RemoteProtocolError, asyncio.CancelledError):
            self._session.abandon(params.process_id)  # it may run, and no caller would know of it
            raise
        except BaseException as exc:
            self._session.remove_route(params.process_id)
            if isinstance(exc, HoldfastError):
                process.fail(exc)
            raise
        return process

    async def _take_keys(self, policy: "Policy") -> "Policy":
        """Read the keys that stay outside into the policy; a program that supplies one may ask a person."""
        if not self.info.capabilities.holdfast_secrets:
            raise InvalidRequest(
                "this server keeps no keys outside of commands",
                remedy="install holdfast-agents[keys] over there, or leave the keys out",
            )
        sources = map(parse_secret, policy.wish.hosts.secrets)
        for path in filter(None, map(find_file, sources)):
            if await self.files.exists(path):  # it is also on the server's side, if that is this machine
                policy = policy.deny(path)
        read = functools.partial(read_key, environ=os.environ, outside=(os.getcwd(),))
        return await asyncio.to_thread(policy.with_keys, read)

    def _check_filter(self, network: NetworkFilter, policy: "Policy | None") -> None:
        if policy is None or not policy.confines:
            raise UsageError(
                "a filter for the network needs a policy that confines: otherwise nothing enforces it",
                remedy="add policy=Policy.unrestricted(), which guards nothing but the network",
            )
        can = self.info.capabilities
        if not can.network_proxy_launch or (network.review and not can.network_proxy_review_domains):
            raise InvalidRequest("this server cannot filter a command's network by host", remedy="update it")
        if (network.mask_keys and not can.credential_masking) or (
            network.key_providers and not can.credential_masking_custom_providers
        ):
            raise InvalidRequest(
                "this server does not mask such keys", remedy="leave mask_keys out, or update it"
            )

    def _check_asking(
        self, policy: "Policy | None", decide: Decide | None, network: NetworkFilter | None
    ) -> "tuple[Policy | None, NetworkFilter | None]":
        """The policy, without questions if there is no `decide`, and the filter that answers them."""
        within_s = 0.0 if policy is None else policy.wish.hosts.ask_s
        if decide is None:
            if policy is not None and within_s:
                policy = replace(policy, wish=policy.wish.ask_network(0.0))
            return policy, network
        if not within_s or network is not None:
            raise UsageError(
                "whoever decides is asked where the policy says so, and no filter for the network does",
                remedy="add policy=policy.ask_network(), or give decide to the NetworkFilter",
            )
        if not self.info.capabilities.holdfast_ask_hosts:
            raise InvalidRequest("this server asks nobody about hosts", remedy="update it")
        return policy, NetworkFilter(decide=decide, decide_s=within_s)

    async def adopt(
        self,
        process_id: str,
        *,
        tty: bool = False,
        watch: bool = False,
        decide: Decide | None = None,
        decide_s: float = DECIDE_S,
    ) -> Process:
        """Take over a process that another client started, from the oldest output that is kept.

        If its policy asks about hosts, `decide` is called from now on and has `decide_s` seconds.

        Raises:
            InvalidRequest: there is no process of that id, or it is gone.
        """
        process = Process(self._session, process_id, tty=tty, watch=watch)
        self._session.add_route(process)
        if decide is not None:
            self._session.deciders.add(process_id, NetworkFilter(decide=decide, decide_s=decide_s))
        if process.denials is not None:
            process.denials.catch_up()
        try:
            params = ReadParams(process_id, None, None, 0)
            process.adopted(decode_page(await self._session.call_again("process/read", params)))
        except BaseException:
            self._session.remove_route(process_id)
            raise
        return process

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: RemotePath | None = None,
        env: Mapping[str, str] | None = None,
        policy: "Policy | None" = None,
        tty: bool = False,
        arg0: str | None = None,
        input: bytes | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        limits: Limits | None = None,
        network: NetworkFilter | None = None,
        decide: Decide | None = None,
    ) -> Result:
        """Run a command to its end; a non-zero exit is a result, not an error.

        `input` is all its standard input. If the call is cancelled or times out, the command is ended. A
        limit that the command reached, also one of time, is in the result.

        Raises:
            TimeoutError: it took longer than `timeout_s`.
            InvalidRequest: `input` is given and the server cannot close a command's standard input.
        """
        if input is not None and not (tty or self.info.capabilities.holdfast_close_stdin):
            raise InvalidRequest(
                "this server cannot tell a command where its input ends",
                remedy="use tty=True, or start() and write() with a command that knows when to stop reading",
            )
        async with contextlib.nullcontext() if timeout_s is None else asyncio.timeout(timeout_s):
            process = await self.start(
                argv,
                cwd=cwd,
                env=env,
                policy=policy,
                tty=tty,
                stdin=input is not None,
                arg0=arg0,
                limits=limits,
                network=network,
                decide=decide,
            )
            try:
                if input is None:
                    return await process.wait(max_output_bytes=max_output_bytes)
                return await _feed_and_wait(process, input, max_output_bytes)
            except BaseException:
                process.abandon()
                raise

    def _directory(self, cwd: RemotePath | None) -> PathUri:
        if cwd is not None:
            return to_uri(cwd)
        if self.info.cwd is None:
            raise UsageError("the server does not say where it is", remedy="give cwd=")
        return PathUri.parse(self.info.cwd)


async def _feed_and_wait(process: Process, data: bytes, max_output_bytes: int) -> Result:
    feeding = asyncio.get_running_loop().create_task(_feed(process, data))
    try:
        return await process.wait(max_output_bytes=max_output_bytes)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _feed(process: Process, data: bytes) -> None:
    with contextlib.suppress(HoldfastError):  # the command ended without reading all of it, which it may do
        await process.write(data)
        await process.close_stdin()


def _limits(limits: Limits | None, policy: "Policy | None") -> Limits | None:
    """The given limits, completed by those of the policy."""
    written = None if policy is None else policy.limits
    return limits.over(written) if limits and written else limits or written


def _encode_limits(limits: Limits) -> ProcessLimits:
    timeout_ms = None if limits.timeout_s is None else round(limits.timeout_s * 1000)
    return ProcessLimits(limits.memory, limits.pids, limits.cpus, limits.disk, limits.open_files, timeout_ms)


def _words(argv: Sequence[str]) -> list[str]:
    if isinstance(argv, str) or not argv:
        raise UsageError("a command is a list of at least one word", remedy='write ["/bin/sh", "-c", "…"]')
    return [os.fspath(word) for word in argv]


@contextlib.asynccontextmanager
async def connect(
    address: str | Sequence[str],
    *,
    token: str | None = None,
    connect_timeout_s: float = CONNECT_S,
    initialize_timeout_s: float = INITIALIZE_S,
) -> AsyncIterator[Environment]:
    """Connect for as long as the block lasts; processes that still run at its end are ended.

    `address` is "ws://HOST:PORT", "wss://HOST", "ssh://[USER@]HOST[/PATH]", "unix:///path/of/socket", or the
    command line of a server that speaks on its standard streams. A lost WebSocket, ssh connection or unix
    socket is dialled again and the session resumed, for 25 s; a child is not.

    Raises:
        Unreachable: no server answers there.
        TokenRefused: the token is not accepted.
        ProtocolMismatch: the peer is not an exec server.
    """
    environment = await Environment.open(
        address,
        token=token,
        connect_timeout_s=connect_timeout_s,
        initialize_timeout_s=initialize_timeout_s,
    )
    try:
        yield environment
    finally:
        await environment.aclose()
