"""Messages about the managed network: the proxy of a process, questions to the client, and decisions.

Pure module.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.wire.structs import U16, U64, MethodResult, Params

MAX_HOST: Final = 253  # bytes of a host in a question or a record
MAX_REASON: Final = 1024  # bytes of a decider's text
MAX_PROCESS_ID: Final = 256  # bytes, if the client is asked
MAX_QUESTIONS: Final = 256  # of one connection at the same time; further ones are answered with no
GRACE_S: Final = 5.0  # added to the client's own time, for the transfer in both directions

AskedProtocol: TypeAlias = Literal["http", "https_connect", "socks5_tcp", "socks5_udp"]


class ManagedNetwork(Params, frozen=True):
    loopback_ports: list[U16] = []
    allow_local_binding: bool = False
    allow_unix_sockets: list[str] = []
    dangerously_allow_all_unix_sockets: bool = False


class CredentialProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Keys that a client describes: variables, the format of their values, their destinations and headers."""

    env: list[str] = []
    patterns: list[str] = []
    url_prefixes: list[str] = []
    url_prefix_from_env: str | None = None
    auth: list[Literal["bearer", "token", "basic", "header"]] = []
    header: str | None = None
    prefix: str | None = None


class ProxySettings(Params, frozen=True, omit_defaults=True):
    enabled: bool
    enable_socks5: bool
    enable_socks5_udp: bool
    allow_upstream_proxy: bool
    dangerously_allow_all_unix_sockets: bool
    allow_local_binding: bool
    mode: Literal["full", "limited"]
    domains: dict[str, Literal["allow", "deny", "none"]] | None = None
    unix_sockets: dict[str, Literal["allow", "deny", "none"]] | None = None
    review_domains: list[str] | None = None
    credential_masking: bool = False
    credential_providers: dict[str, CredentialProvider] | None = None


class NetworkProxy(Params, frozen=True, omit_defaults=True):
    """A proxy for this process alone. Members for the client's own records are ignored."""

    proxy: ProxySettings
    audit_metadata: dict[str, Any] | None = None
    environment_id: str | None = None
    execution_id: str | None = None
    policy_decision_timeout_ms: U64 | None = None  # the client is asked about hosts that no rule mentions


class PolicyQuestion(MethodResult, frozen=True):
    """`pattern` and `program` are ours: what an answer may allow too, and the program that asks, if known."""

    protocol: AskedProtocol
    host: str
    port: int
    pattern: str | msgspec.UnsetType = msgspec.UNSET
    program: str | msgspec.UnsetType = msgspec.UNSET


class PolicyRequest(MethodResult, frozen=True):
    """`network/policyRequest`: may this process reach that host?"""

    process_id: str
    request: PolicyQuestion


class AllowDecision(MethodResult, frozen=True, tag="allow"):
    scope: Literal["host", "pattern"] | msgspec.UnsetType = msgspec.UNSET  # ours: the pattern of the question


class DenyDecision(MethodResult, frozen=True, tag="deny"):
    reason: str


class AskDecision(MethodResult, frozen=True, tag="ask"):
    """The decision is still pending elsewhere; until then it counts as no."""

    reason: str


PolicyAnswer: TypeAlias = AllowDecision | DenyDecision | AskDecision


class PolicyReply(MethodResult, frozen=True):
    decision: PolicyAnswer


class PolicyDecision(MethodResult, frozen=True):
    """`network/policyDecision`: a decision, its source and its reason."""

    process_id: str
    timestamp: str
    scope: Literal["domain", "non_domain"]
    decision: Literal["allow", "deny", "ask"]
    source: Literal["baseline_policy", "mode_guard", "proxy_state", "decider"]
    reason: str
    protocol: AskedProtocol
    host: str
    port: U16
    method: str | msgspec.UnsetType = msgspec.UNSET
    client: str | msgspec.UnsetType = msgspec.UNSET
    policy_override: bool = False


def is_plain(text: str, most: int) -> bool:
    """Whether a text of the peer is short and has nothing that a terminal would interpret."""
    return len(text.encode("utf-8", "surrogatepass")) <= most and text.isprintable()
