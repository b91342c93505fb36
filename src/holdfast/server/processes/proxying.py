"""The managed proxy of one process: checks of the client's settings, and the questions to the client.

Every failed question is a denial: no client attached, too late, too many at once, an error, an invalid
answer.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import decoding
from holdfast.confine.loopback import Services
from holdfast.confine.starts import Sandbox
from holdfast.egress import proxy, socks
from holdfast.egress.dial import Dialer
from holdfast.egress.gate import Gate
from holdfast.egress.hosts import HostRule, HostRules, parse_rule
from holdfast.egress.upstream import REPEATS, Proxies, Upstreams
from holdfast.egress.variables import name_proxy
from holdfast.egress.verdicts import GRANTED, UNDECIDED, Attempt, Outcome, ProxyPolicy, Source, Verdict
from holdfast.errors import UsageError
from holdfast.light import replace
from holdfast.server.processes.hostasking import AskClient
from holdfast.wire import network as wire
from holdfast.wire.rpc import JsonValue, notification

if TYPE_CHECKING:
    from holdfast.confine.keys import KeptKeys

HTTP_PORT: Final = 23128  # inside; only the command itself is there, and hardly on these
SOCKS_PORT: Final = 21080
MAX_METHOD: Final = 32  # bytes of a request's method in a record
_INVALID: Final = "invalid network proxy config"
_NO_REASON: Final = "policy_denied"  # the reason of a denial without a text


@dataclass(frozen=True, slots=True)
class ProcessProxy:
    """The proxy of a process: its ports inside, and the variables that name them."""

    services: Services
    variables: dict[str, str]
    weakened: tuple[str, ...]

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(sorted(self.services))

    def declare(self, sandbox: Sandbox) -> Sandbox:
        """Return the same sandbox, whose report names what is weaker because of the proxy."""
        held = sandbox.enforcement
        return replace(sandbox, enforcement=replace(held, weakened=held.weakened + self.weakened))


def make_proxy(
    process_id: str,
    asked: wire.NetworkProxy,
    *,
    taken: tuple[int, ...],
    upstream: Upstreams,
    ask: AskClient,
    offer: Callable[[bytes], None],
    dialer: Dialer | None = None,
    keys: "KeptKeys | None" = None,
) -> ProcessProxy:
    """Create a proxy for a process that is about to start; `taken` are ports inside that are used otherwise.

    It puts `keys` into requests to their hosts, and decrypts those for that.

    Raises:
        UsageError: the settings are invalid, or not supported here.
    """
    check(process_id, asked)
    settings = asked.proxy
    above = upstream if settings.allow_upstream_proxy else Upstreams()
    timeout_ms = asked.policy_decision_timeout_ms
    gate = Gate(
        policy_of(settings),
        dialer or Dialer(upstream=above),
        tell=lambda attempt, verdict: offer(tell_decision(process_id, attempt, verdict, datetime.now(UTC))),
        ask=None if timeout_ms is None else functools.partial(_ask, ask, process_id, timeout_ms / 1000),
        inspector=None if keys is None else keys.make_inspector(),
    )
    http = find_port(HTTP_PORT, taken)
    services = {http: functools.partial(proxy.serve, gate=gate)}
    named = None
    if settings.enable_socks5:
        port = find_port(SOCKS_PORT, (*taken, http))
        services[port] = functools.partial(socks.serve, gate=gate)
        named = f"127.0.0.1:{port}"
    variables = {} if keys is None else keys.variables
    variables |= name_proxy(f"127.0.0.1:{http}", named, local_binding=settings.allow_local_binding)
    proxied = above.proxies is not None and (above.proxies.http or above.proxies.https)
    return ProcessProxy(services, variables, (REPEATS,) if proxied else ())


def find_port(wanted: int, taken: tuple[int, ...]) -> int:
    """The first free port inside, from this one on."""
    return next(port for port in range(wanted, 1 << 16) if port not in taken)


def check(process_id: str, asked: wire.NetworkProxy) -> None:
    """Refuse settings that are invalid or not supported here.

    Raises:
        UsageError: a setting is invalid or not supported here.
    """
    if not asked.proxy.enabled:
        raise UsageError(f"{_INVALID}: a proxy is launched for a process only if it is enabled")
    if asked.proxy.dangerously_allow_all_unix_sockets:
        raise UsageError("dangerouslyAllowAllUnixSockets is not granted: it would lead out of the sandbox")
    if asked.proxy.credential_providers and not asked.proxy.credential_masking:
        raise UsageError(f"{_INVALID}: credentialProviders are for credentialMasking")
    if asked.policy_decision_timeout_ms is None:
        return
    if not asked.policy_decision_timeout_ms:
        raise UsageError("the time to answer a question about the network must not be zero")
    if not 0 < len(process_id.encode()) <= wire.MAX_PROCESS_ID:
        raise UsageError(f"a process whose client is asked has an id of 1 to {wire.MAX_PROCESS_ID} bytes")


def policy_of(settings: wire.ProxySettings) -> ProxyPolicy:
    """Parse the rules of these settings; a pattern without a port applies to every port.

    Raises:
        UsageError: a pattern is invalid.
    """
    domains = settings.domains or {}
    return ProxyPolicy(
        HostRules(
            tuple(_rule(text) for text, access in domains.items() if access == "allow"),
            tuple(_rule(text, denies=True) for text, access in domains.items() if access == "deny"),
            private=settings.allow_local_binding,
        ),
        limited=settings.mode == "limited",
        review=tuple(map(_rule, settings.review_domains or ())),
    )


def _rule(text: str, *, denies: bool = False) -> HostRule:
    try:
        rule = parse_rule(text, denies=denies, default_ports=None)
    except UsageError as exc:
        raise UsageError(f"{_INVALID}: {exc}", remedy=exc.remedy) from None
    if rule.only is not None:
        raise UsageError(f"{_INVALID}: a proxy's rules are about hosts, not about requests")
    return rule


def upstreams_of(environ: Mapping[str, str], *, private: bool) -> Upstreams:
    """The proxies that the executor itself needs."""
    return Upstreams(Proxies.from_environ(environ), private)


async def _ask(ask: AskClient, process_id: str, timeout_s: float, attempt: Attempt) -> Verdict:
    question = wire.PolicyQuestion(attempt.protocol.value, attempt.host.name, attempt.port)
    answer = await ask(
        "network/policyRequest", wire.PolicyRequest(process_id, question), timeout_s + wire.GRACE_S
    )
    return read_answer(answer)


def read_answer(answer: JsonValue) -> Verdict:
    """Parse the client's decision; an invalid answer is a denial."""
    try:
        decision = decoding.convert(answer, wire.PolicyReply).decision
    except msgspec.ValidationError:
        return UNDECIDED
    if isinstance(decision, wire.AllowDecision):
        return GRANTED
    if not wire.is_plain(decision.reason, wire.MAX_REASON):
        return UNDECIDED
    outcome = Outcome.ASK if isinstance(decision, wire.AskDecision) else Outcome.DENY
    return Verdict(outcome, Source.DECIDER, decision.reason or _NO_REASON)


def tell_decision(process_id: str, attempt: Attempt, verdict: Verdict, now: datetime) -> bytes:
    """Encode the record of a decision as a message."""
    method = attempt.method
    return notification(
        "network/policyDecision",
        wire.PolicyDecision(
            process_id=process_id,
            timestamp=now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03}Z",
            scope="domain" if verdict.about_host else "non_domain",
            decision=verdict.outcome.value,
            source=verdict.source.value,
            reason=verdict.reason,
            protocol=attempt.protocol.value,
            host=attempt.host.name,
            port=attempt.port,
            method=msgspec.UNSET if method is None or len(method) > MAX_METHOD else method,
            client=attempt.client,
            policy_override=verdict.override,
        ),
    )
