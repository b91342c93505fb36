"""Which hosts a command on the other machine may reach, and the callback here that decides about others.

    await env.run(argv, policy=policy, network=NetworkFilter(["api.example.com", "*.example.org"]))

The server starts a proxy for this command alone and blocks every other way out. If there is a callback, the
server asks about hosts that no rule mentions; any failure while asking is a refusal.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.errors import UsageError
from holdfast.wire.network import (
    MAX_HOST,
    MAX_QUESTIONS,
    MAX_REASON,
    AllowDecision,
    CredentialProvider,
    DenyDecision,
    NetworkProxy,
    PolicyDecision,
    PolicyQuestion,
    PolicyReply,
    PolicyRequest,
    ProxySettings,
    is_plain,
)
from holdfast.wire.rpc import JsonValue

log = logging.getLogger(__name__)

DECIDE_S: Final = 60.0  # a person reads a question and answers it
MAX_METHOD: Final = 32  # bytes, of a server's record
MAX_CLIENT: Final = 256
DENIED: Final = PolicyReply(DenyDecision("not_allowed"))
ALLOWED: Final = PolicyReply(AllowDecision())
ALL_ALLOWED: Final = PolicyReply(AllowDecision("pattern"))

# True allows; "pattern" allows all hosts that the pattern of the question covers; anything else denies.
Decide: TypeAlias = Callable[[PolicyQuestion], Awaitable[bool | Literal["pattern"]]]
Reply: TypeAlias = Callable[[PolicyReply | None], None]  # None: the question was malformed


@dataclass(frozen=True, slots=True)
class NetworkFilter:
    """The hosts that a command may reach: names, `*.name` below them, `**.name` both, addresses, or `*`.

    Denied takes precedence over allowed. Hosts of `review` are asked about although they are allowed.
    `decide` is called about every other host and has `decide_s` seconds; without it they are refused.
    `on_decision` is called with every decision of the server. `limited`: only reading, by plain HTTP.
    `local`: also addresses that are not public. `upstream`: through the server's own proxy, where it has one.
    `mask_keys`: keys that the server knows by their variables stay outside of the command, and so do those
    that `key_providers` describe.
    """

    allow: Iterable[str] = ()
    deny: Iterable[str] = ()
    review: Iterable[str] = ()
    decide: Decide | None = None
    decide_s: float = DECIDE_S
    on_decision: Callable[[PolicyDecision], None] | None = None
    limited: bool = False
    local: bool = False
    socks: bool = True
    upstream: bool = True
    mask_keys: bool = False
    key_providers: Mapping[str, CredentialProvider] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("allow", "deny", "review"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise UsageError(f"{name} is a list of hosts", remedy=f'write {name}=["{given:.60}"]')
            object.__setattr__(self, name, tuple(given))
        if self.decide_s <= 0:
            raise UsageError("the time to decide must be more than 0 s")
        if self.key_providers and not self.mask_keys:
            raise UsageError("key_providers say which keys are masked", remedy="add mask_keys=True")

    def settings(self) -> NetworkProxy:
        """The settings that are sent to the server."""
        domains = dict.fromkeys(self.allow, "allow") | dict.fromkeys(self.deny, "deny")
        return NetworkProxy(
            ProxySettings(
                enabled=True,
                enable_socks5=self.socks,
                enable_socks5_udp=False,
                allow_upstream_proxy=self.upstream,
                dangerously_allow_all_unix_sockets=False,
                allow_local_binding=self.local,
                mode="limited" if self.limited else "full",
                domains=domains,  # type: ignore[arg-type]
                review_domains=[*self.review] or None,
                credential_masking=self.mask_keys,
                credential_providers=dict(self.key_providers) or None,
            ),
            policy_decision_timeout_ms=None if self.decide is None else max(1, round(self.decide_s * 1000)),
        )


class Deciders:
    """The filters of one session's processes, which answer questions.

    A process that is gone has no questions.
    """

    def __init__(self, spawn: Callable[[Coroutine[None, None, None]], None]) -> None:
        self._spawn = spawn
        self._filters: dict[str, NetworkFilter] = {}
        self._deciding: dict[str, set[asyncio.Task[bool | Literal["pattern"]]]] = {}

    def add(self, process_id: str, network: NetworkFilter) -> None:
        """Register a filter before the start is sent: the first question may overtake the answer."""
        self._filters[process_id] = network

    def remove(self, process_id: str) -> None:
        """Forget a process that ended or was given up: pending and later questions about it are denied."""
        self._filters.pop(process_id, None)
        for task in self._deciding.pop(process_id, ()):
            task.cancel()

    def clear(self) -> None:
        for process_id in list(self._filters):
            self.remove(process_id)

    def ask(self, params: JsonValue, reply: Reply) -> None:
        """Answer a question of the server; `reply` is called once, now or later."""
        try:
            asked = decoding.convert(params, PolicyRequest)
        except msgspec.ValidationError:
            reply(None)
            return
        network = self._filters.get(asked.process_id)
        busy = sum(map(len, self._deciding.values())) >= MAX_QUESTIONS
        if network is None or network.decide is None or busy or not is_fit(asked.request):
            reply(DENIED)
            return
        self._spawn(self._decide(asked, network.decide, network.decide_s, reply))

    async def _decide(self, asked: PolicyRequest, decide: Decide, within_s: float, reply: Reply) -> None:
        answer = DENIED
        deciding = asyncio.ensure_future(_bound(decide, asked.request, within_s))
        under_way = self._deciding.setdefault(asked.process_id, set())
        under_way.add(deciding)
        try:
            await asyncio.wait([deciding])
            if not deciding.cancelled():
                answer = _reply_to(deciding.result())
        finally:
            deciding.cancel()
            under_way.discard(deciding)
            reply(answer)

    def hear(self, params: JsonValue) -> None:
        """Pass on a record of a decision; malformed records and those of unknown processes are ignored."""
        try:
            told = decoding.convert(params, PolicyDecision)
        except msgspec.ValidationError:
            return
        network = self._filters.get(told.process_id)
        if network is not None and network.on_decision is not None and is_credible(told):
            try:
                network.on_decision(told)
            except Exception:
                log.exception("hearing a decision about the network failed")


def _reply_to(decided: object) -> PolicyReply:
    if decided is True:
        return ALLOWED
    return ALL_ALLOWED if isinstance(decided, str) and decided == "pattern" else DENIED


async def _bound(decide: Decide, question: PolicyQuestion, within_s: float) -> bool | Literal["pattern"]:
    try:
        async with asyncio.timeout(within_s):
            return await decide(question)
    except TimeoutError:
        return False
    except Exception:
        log.exception("deciding about the network failed; the answer is no")
        return False


def is_fit(question: PolicyQuestion) -> bool:
    """Whether a question can be shown to the user."""
    names = [question.host] if question.pattern is msgspec.UNSET else [question.host, question.pattern]
    program = "" if question.program is msgspec.UNSET else question.program
    return all(map(is_host, names)) and is_plain(program, MAX_CLIENT)


def is_host(text: str) -> bool:
    """Whether this can be shown to the user: short, only printable characters, no white space."""
    return len(text) > 0 and is_plain(text, MAX_HOST) and not any(map(str.isspace, text))


def is_credible(told: PolicyDecision) -> bool:
    """Whether a record has only permitted values."""
    try:
        moment = datetime.fromisoformat(told.timestamp)
    except ValueError:
        return False
    method = "" if told.method is msgspec.UNSET else told.method
    client = "" if told.client is msgspec.UNSET else told.client
    return (
        moment.tzinfo is not None
        and is_host(told.host)
        and is_plain(told.reason, MAX_REASON)
        and is_plain(method, MAX_METHOD)
        and is_plain(client, MAX_CLIENT)
    )
