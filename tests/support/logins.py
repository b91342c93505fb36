"""Homes of people who are logged in: the files of each agent CLI as it writes them, and a token endpoint.

`set_up` writes what a terminal needs so that the CLI, with nothing but HOME, asks the scripted model.
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.arena import MODEL

KEY: Final = "sk-of-the-user-0123456789abcdef"
REFRESH: Final = "refresh-token-1"
ACCOUNT: Final = "account-1"
AGENT_KEY: Final = "MC4CAQAwBQYDK2VwBCIEIIzqEy8F7fL/FgmqvMP1ONrB7FE/55TvZQkQcBLjrGZX"  # made for tests
_AUTH: Final = "https://api.openai.com/auth"
DAY_S: Final = 86400.0


def jwt(expires_in_s: float, *, account: str = ACCOUNT, subject: str = "user-1") -> str:
    """A token as OpenAI issues them, but for the signature."""
    claims = {
        "exp": int(time.time() + expires_in_s),
        "sub": subject,
        "email": "me@example.com",
        _AUTH: {"chatgpt_account_id": account, "chatgpt_plan_type": "pro", "chatgpt_user_id": subject},
    }
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*coded, "c2lnbmF0dXJl"))


def chatgpt(expires_in_s: float, *, refresh: str = REFRESH, account: str = ACCOUNT) -> dict[str, Any]:
    """The auth.json of somebody who signed in with ChatGPT."""
    token = jwt(expires_in_s, account=account)
    tokens = {"id_token": token, "access_token": token, "refresh_token": refresh, "account_id": account}
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - 3600))
    return {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": at}


def agent_identity(expires: float, **change: object) -> str:
    """A token with an agent's key in it, but for the signature."""
    claims = {
        "agent_runtime_id": "agent-1",
        "agent_private_key": AGENT_KEY,
        "account_id": ACCOUNT,
        "exp": expires,
        "email": "me@example.com",
    }
    payload = base64.urlsafe_b64encode(json.dumps(claims | change).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


def anthropic(expires_in_s: float, *, refresh: str = REFRESH) -> dict[str, Any]:
    """The .credentials.json of somebody who signed in with a subscription."""
    return {
        "claudeAiOauth": {
            "accessToken": KEY,
            "refreshToken": refresh,
            "expiresAt": int((time.time() + expires_in_s) * 1000),
            "scopes": ["user:inference", "user:profile"],
            "subscriptionType": "max",
        }
    }


def _codex_settings(url: str, more: str = "") -> str:
    return (
        f'model = "{MODEL}"\nmodel_provider = "mine"\nchatgpt_base_url = "{url}/backend-api"\n'
        'notify = ["sh", "-c", "touch notified"]\n'
        f'[model_providers.mine]\nname = "mine"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        "requires_openai_auth = true\n[features]\nenable_request_compression = false\n"
        f'[mcp_servers.mine]\ncommand = "sh"\nenv = {{ TOKEN = "of-another-service" }}\n{more}'
    )


def _opencode_settings(url: str) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Mine",
        "options": {"baseURL": f"{url}/v1"},
        "models": {MODEL: {}},
    }
    return (
        "{\n  // what people leave in it\n"
        f'  "$schema": "https://opencode.ai/config.json",\n  "model": "mine/{MODEL}",\n'
        f'  "provider": {{"mine": {json.dumps(provider)}}},\n'
        '  "mcp": {"mine": {"type": "local", "command": ["false"]}},\n}\n'
    )


def _gemini_settings(url: str) -> str:
    return json.dumps(
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "model": {"name": MODEL},
            "mcpServers": {"mine": {"command": "false"}},
        }
    )


def _qwen_settings(url: str) -> str:
    auth = {"selectedType": "openai", "apiKey": KEY, "baseUrl": f"{url}/v1"}
    return json.dumps({"security": {"auth": auth}, "model": {"name": MODEL}})


def _claude_settings(url: str) -> str:
    hook = {"hooks": [{"type": "command", "command": "touch notified"}]}
    return json.dumps({"env": {"ANTHROPIC_BASE_URL": url}, "model": MODEL, "hooks": {"Stop": [hook]}})


@dataclass(frozen=True)
class Home:
    """The files of one login, by their place in the home, and the key that a provider then sees."""

    cli: str
    files: dict[str, Callable[[str], str]]
    key: Callable[[dict[str, str]], str] = lambda _: KEY


_AUTH_JSON: Final = ".codex/auth.json"
_ACCOUNT: Final = {
    "hasCompletedOnboarding": True,
    "oauthAccount": {"accountUuid": "a-1", "emailAddress": "me@example.com", "organizationUuid": "o-1"},
    "projects": {"/home/me/secret-project": {}},
}

HOMES: Final = {
    "codex-key": Home(
        "codex",
        {
            _AUTH_JSON: lambda _: json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": KEY}),
            ".codex/config.toml": _codex_settings,
        },
    ),
    "codex-chatgpt": Home(
        "codex",
        {
            _AUTH_JSON: lambda _: json.dumps(chatgpt(9 * DAY_S), indent=2),
            ".codex/config.toml": _codex_settings,
        },
        lambda files: str(json.loads(files[_AUTH_JSON])["tokens"]["access_token"]),
    ),
    "opencode": Home(
        "opencode",
        {
            ".local/share/opencode/auth.json": lambda _: json.dumps({"mine": {"type": "api", "key": KEY}}),
            ".config/opencode/opencode.json": _opencode_settings,
            ".config/opencode/AGENTS.md": lambda _: "Instructions of the user.\n",
        },
    ),
    "claude-subscription": Home(
        "claude",
        {
            ".claude/.credentials.json": lambda _: json.dumps(anthropic(DAY_S / 4)),
            ".claude.json": lambda _: json.dumps(_ACCOUNT),
            ".claude/settings.json": _claude_settings,
        },
    ),
    "claude-key": Home(
        "claude",
        {
            ".claude.json": lambda _: json.dumps(
                {
                    **_ACCOUNT,
                    "primaryApiKey": KEY,
                    "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                }
            ),
            ".claude/settings.json": _claude_settings,
        },
    ),
    "gemini-key": Home(
        "gemini",
        {
            ".gemini/.env": lambda url: f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={url}\n",
            ".gemini/settings.json": _gemini_settings,
        },
    ),
    "qwen-key": Home("qwen", {".qwen/settings.json": _qwen_settings}),
}


def set_up(name: str, home: Path, url: str) -> str:
    """Log somebody in; the key that a provider is then shown."""
    made = {path: text(url) for path, text in HOMES[name].files.items()}
    for path, text in made.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text, "utf-8")
        (home / path).chmod(0o600)
    return HOMES[name].key(made)


@dataclass
class TokenEndpoint:
    """Where refresh tokens are spent: each once, as the real one has it."""

    url: str = ""
    spent: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    valid: str = REFRESH

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        size = re.search(r"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
        asked = json.loads(await reader.readexactly(int(size[1]) if size else 0))
        shown = str(asked["refresh_token"])
        if shown == self.valid:
            self.spent.append(shown)
            self.valid = f"refresh-token-{len(self.spent) + 1}"
            token = jwt(9 * DAY_S)
            status, said = "200 OK", {"id_token": token, "access_token": token, "refresh_token": self.valid}
        else:
            self.refused.append(shown)
            status, said = "401 Unauthorized", {"error": {"code": "refresh_token_reused"}}  # type: ignore[dict-item]
        body = json.dumps(said).encode()
        fields = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def token_endpoint() -> AsyncIterator[TokenEndpoint]:
    made = TokenEndpoint()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/oauth/token"
        yield made
