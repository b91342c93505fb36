"""The verdicts of a managed proxy about an attempt to reach a host, and their texts. Pure module.

The texts that programs parse (reasons, sources, the value of `x-proxy-error`) are those of the reference,
because its client knows them.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.egress.hosts import Extent, Host, HostRule, HostRules, Reason, decide

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})  # the only methods in limited mode
HTTPS_PORT: Final = 443


class Protocol(enum.Enum):
    """The protocol of an attempt."""

    HTTP = "http"
    HTTPS_CONNECT = "https_connect"
    SOCKS5_TCP = "socks5_tcp"


class Outcome(enum.Enum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"  # the decider has not decided: this blocks like a denial


class Source(enum.Enum):
    """Which part decided."""

    BASELINE = "baseline_policy"
    MODE = "mode_guard"
    DECIDER = "decider"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a program to reach a host."""

    protocol: Protocol
    host: Host
    port: int
    client: str
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about an attempt, its source and its reason. `override`: against the rules."""

    outcome: Outcome
    source: Source
    reason: str
    override: bool = False

    @property
    def allowed(self) -> bool:
        return self.outcome is Outcome.ALLOW

    @property
    def about_host(self) -> bool:
        """Whether the verdict is about the host rather than about the request."""
        return self.source is not Source.MODE


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """What one proxy lets through. `review`: allowed hosts that need a question all the same."""

    rules: HostRules
    limited: bool = False
    review: tuple[HostRule, ...] = ()


NOT_ALLOWED: Final = Verdict(Outcome.DENY, Source.BASELINE, Reason.NOT_ALLOWED.value)
DENIED: Final = Verdict(Outcome.DENY, Source.BASELINE, Reason.DENIED.value)
NOT_PUBLIC: Final = Verdict(Outcome.DENY, Source.BASELINE, Reason.NOT_ALLOWED_LOCAL.value)
UNDECIDED: Final = Verdict(Outcome.DENY, Source.DECIDER, Reason.NOT_ALLOWED.value)  # no answer came
GRANTED: Final = Verdict(Outcome.ALLOW, Source.DECIDER, Reason.NOT_ALLOWED.value, override=True)
_METHOD: Final = Verdict(Outcome.DENY, Source.MODE, "method_not_allowed")
_INSPECTION: Final = Verdict(Outcome.DENY, Source.MODE, "mitm_required")


def judge(policy: ProxyPolicy, host: Host, port: int) -> Verdict:
    """The verdict of the rules about a host; a host that no rule mentions may be asked about."""
    decision = decide(policy.rules, host, port)
    if not decision.allowed:
        return Verdict(Outcome.DENY, Source.BASELINE, decision.reason.value)
    if any(rule.covers(host, port) for rule in policy.review):
        return NOT_ALLOWED
    return Verdict(Outcome.ALLOW, Source.BASELINE, "allow")


def may_be_asked(verdict: Verdict) -> bool:
    """Whether the decider may overrule it: never for a denied host, nor for one that is not public."""
    return verdict == NOT_ALLOWED


def guard_port(policy: ProxyPolicy, attempt: Attempt) -> Verdict | None:
    """In limited mode refuse a SOCKS tunnel to a port other than HTTPS; None: continue judging."""
    tunnel = attempt.protocol is Protocol.SOCKS5_TCP and attempt.port != HTTPS_PORT
    return _METHOD if policy.limited and tunnel else None


def guard_mode(policy: ProxyPolicy, attempt: Attempt) -> Verdict | None:
    """In limited mode allow only reading, and only requests that can be inspected; None: go on."""
    if not policy.limited:
        return None
    if attempt.protocol is Protocol.HTTP:
        return None if attempt.method in READING else _METHOD
    return _INSPECTION


def is_explicit(policy: ProxyPolicy, host: Host, port: int) -> bool:
    """Whether a host that is not public has a rule of its own."""
    rule = policy.rules.find(host, port, denies=False)
    return host.is_local and rule is not None and rule.extent is Extent.EXACT


_ALLOWLIST: Final = "blocked-by-allowlist"
_ERRORS: Final[Mapping[str, tuple[str, str]]] = {
    Reason.DENIED.value: ("blocked-by-denylist", "The policy of this sandbox denies this host."),
    Reason.NOT_ALLOWED.value: (_ALLOWLIST, "This host is not among those that are allowed here."),
    Reason.NOT_ALLOWED_LOCAL.value: (
        _ALLOWLIST,
        "This host is local or private, and the policy of this sandbox allows no such addresses.",
    ),
    "method_not_allowed": (
        "blocked-by-method-policy",
        "Only reading is allowed here: GET, HEAD and OPTIONS.",
    ),
    "mitm_required": (
        "blocked-by-mitm-required",
        "Only what can be inspected is allowed here, and this cannot.",
    ),
}
_OTHER: Final = ("blocked-by-policy", "A decision about the network blocked this request.")


def name_error(verdict: Verdict) -> str:
    """The value of `x-proxy-error`."""
    return _ERRORS.get(verdict.reason, _OTHER)[0]


def explain(verdict: Verdict) -> str:
    """Why it was refused, for a person."""
    return _ERRORS.get(verdict.reason, _OTHER)[1]


def describe(attempt: Attempt, verdict: Verdict) -> dict[str, object]:
    """A refusal for a program, in the reference's format."""
    return {
        "status": "blocked",
        "host": attempt.host.name,
        "reason": verdict.reason,
        "decision": verdict.outcome.value,
        "source": verdict.source.value,
        "protocol": attempt.protocol.value,
        "port": attempt.port,
        "message": explain(verdict),
    }
