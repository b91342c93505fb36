"""An agent identity as the credential for a registry: `CODEX_ACCESS_TOKEN`, a token with a key in it.

The identity registers a task with its vendor once, and then signs an assertion for every request: its id, the
task and the time. The registry checks the issuer of the token, as it does with every token; we check only the
members that we use. Derived from the released executor; there is no published description.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import decoding
from holdfast.errors import StartupError, TokenRefused, UsageError
from holdfast.rendezvous.credentials import check_header
from holdfast.server.remote.login import may_go_there

if TYPE_CHECKING:
    pass

VARIABLE: Final = "CODEX_ACCESS_TOKEN"
ACCOUNTS: Final = "https://auth.openai.com/api/accounts"  # the vendor's only
REGISTER_S: Final = 10.0
ATTEMPTS: Final = 3
MAX_ANSWER_BYTES: Final = 16 * 1024
_AGENT: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")  # it becomes part of an address
_NONE: Final = f"what {VARIABLE} holds is no agent identity"


class _Claims(msgspec.Struct):
    agent_runtime_id: str
    agent_private_key: str
    account_id: str
    exp: float
    chatgpt_account_is_fedramp: bool = False


class _Task(msgspec.Struct):
    task_id: str


class AgentIdentity:
    """The content of a token. It appears in no repr."""

    def __init__(self, token: str) -> None:
        """Raises: StartupError: this is not an agent identity."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_der_private_key

        try:
            _, payload, _ = token.strip().split(".")
            decoded = base64.b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True)
            claims = decoding.decode(decoded, _Claims)
            key = load_der_private_key(base64.b64decode(claims.agent_private_key, validate=True), None)
            self.account_id = check_header(claims.account_id, VARIABLE)
            self.agent_id = check_header(claims.agent_runtime_id, VARIABLE)
        except (ValueError, binascii.Error, msgspec.DecodeError, UsageError, TypeError):  # may quote it
            raise StartupError(_NONE) from None
        if not isinstance(key, Ed25519PrivateKey) or not _AGENT.fullmatch(self.agent_id):
            raise StartupError(_NONE)
        self._key: Ed25519PrivateKey = key
        self.expires = claims.exp
        self.fedramp = claims.chatgpt_account_is_fedramp

    def __repr__(self) -> str:
        return "<AgentIdentity>"

    def ask_for_task(self, now: float) -> bytes:
        """The body of the request that registers a task."""
        stamp = _stamp(now)
        return msgspec.json.encode({"timestamp": stamp, "signature": self._sign(self.agent_id, stamp)})

    def assert_task(self, task_id: str, now: float) -> str:
        """The value of an Authorization header."""
        stamp = _stamp(now)
        said = {
            "agent_runtime_id": self.agent_id,
            "signature": self._sign(self.agent_id, task_id, stamp),
            "task_id": task_id,
            "timestamp": stamp,
        }
        return f"AgentAssertion {base64.urlsafe_b64encode(msgspec.json.encode(said)).rstrip(b'=').decode()}"

    def _sign(self, *words: str) -> str:
        return base64.b64encode(self._key.sign(":".join(words).encode())).decode()


class AgentLogin:
    """An identity and its task. `clock` returns the seconds since 1970."""

    def __init__(
        self, identity: AgentIdentity, clock: Callable[[], float], accounts_url: str = ACCOUNTS
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._url = f"{accounts_url}/v1/agent/{identity.agent_id}/task/register"
        self._task: str | None = None

    def headers(self) -> dict[str, str]:
        """The current headers. Raises: TokenRefused: the identity has expired, or has no task yet."""
        identity, now = self._identity, self._clock()
        if self._task is None or identity.expires <= now:
            raise TokenRefused("the agent identity has expired", remedy=f"start again with a new {VARIABLE}")
        fedramp = {"x-openai-fedramp": "true"} if identity.fedramp else {}
        shown = {
            "authorization": identity.assert_task(self._task, now),
            "chatgpt-account-id": identity.account_id,
        }
        return shown | fedramp

    async def register_task(self) -> None:
        """Register a task; to be called before `headers`.

        Raises: StartupError: the vendor refuses it or is silent.
        """
        for _ in range(ATTEMPTS):
            try:
                async with asyncio.timeout(REGISTER_S):
                    self._task = await self._ask()
            except TimeoutError:
                continue
            if self._task is not None:
                return
        raise StartupError("the agent identity is not taken by its vendor, or that cannot be reached")

    async def _ask(self) -> str | None:
        """Return the task; None: there is no answer. Raises: StartupError: it is refused."""
        import httpx2

        body = self._identity.ask_for_task(self._clock())
        headers = {"content-type": "application/json", "user-agent": "holdfast"}
        try:
            async with httpx2.AsyncClient(timeout=None, follow_redirects=False) as client:
                answer = await client.post(self._url, content=body, headers=headers)
        except httpx2.TransportError:
            return None
        try:
            if answer.status_code != 200 or len(answer.content) > MAX_ANSWER_BYTES:
                raise StartupError(f"the vendor refuses the agent identity (HTTP {answer.status_code})")
            return check_header(decoding.decode(answer.content, _Task).task_id, "the task")
        except (msgspec.DecodeError, UsageError):
            raise StartupError("the vendor's answer to the agent identity makes no sense") from None


def find_identity(
    registry_url: str, environ: MutableMapping[str, str], clock: Callable[[], float]
) -> AgentLogin:
    """Take the identity from the variable, which is removed from the environment.

    Raises:
        StartupError: there is none, or it must not be sent to this registry.
    """
    token = environ.pop(VARIABLE, "")
    if not token.strip():
        raise StartupError(f"{VARIABLE} is not set", remedy="it holds the agent identity")
    if not may_go_there(registry_url):
        raise StartupError("an agent identity is shown to a registry of its vendor or on this machine only")
    return AgentLogin(AgentIdentity(token), clock)


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
