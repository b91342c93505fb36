"""An HTTP MCP server that wants a login, and its authorisation server, both on one loopback port."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from tests.support.httpd import Httpd, Received, httpd, reply

TOKEN: Final = "token-of-the-authorisation-server"
CODE: Final = "code-1"
CLIENT: Final = "client-1"


@dataclass
class OAuthServer:
    """What it was asked, by path. Its metadata is one redirect away."""

    daemon: Httpd
    challenges: list[str] = field(default_factory=list)
    tokens: list[dict[str, str]] = field(default_factory=list)
    refused: int = 0
    padding: int = 0  # bytes that its metadata is longer by

    @property
    def base(self) -> str:
        return self.daemon.url("").rstrip("/")

    def begin(self, authorization_url: str) -> str:
        """What a browser does whose user agrees: where it is sent back to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(authorization_url).query).items()}
        assert (asked["client_id"], asked["code_challenge_method"]) == (CLIENT, "S256")
        self.challenges.append(asked["code_challenge"])
        back = urlsplit(asked["redirect_uri"])
        return urlunsplit(back._replace(query=urlencode({"code": CODE, "state": asked["state"]})))

    def answer(self, request: Received) -> bytes:
        match urlsplit(request.target).path:
            case "/mcp":
                return self._mcp(request)
            case "/register":
                return _json({"client_id": CLIENT, **json.loads(request.body)}, 201)
            case "/token":
                return self._grant(request)
            case "/.well-known/oauth-authorization-server":
                return reply(302, b"", ("Location", "/metadata"))
            case "/metadata":
                return _json(
                    {
                        "issuer": self.base,
                        "padding": "x" * self.padding,
                        "authorization_endpoint": f"{self.base}/authorize",
                        "token_endpoint": f"{self.base}/token",
                        "registration_endpoint": f"{self.base}/register",
                        "response_types_supported": ["code"],
                        "grant_types_supported": ["authorization_code", "refresh_token"],
                        "code_challenge_methods_supported": ["S256"],
                        "token_endpoint_auth_methods_supported": ["none"],
                    }
                )
            case path if path.startswith("/.well-known/oauth-protected-resource"):
                return _json({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})
        return reply(404)

    def _grant(self, request: Received) -> bytes:
        asked = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        self.tokens.append(asked)
        proof = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest()).rstrip(
            b"="
        )
        if asked["code"] != CODE or proof.decode() not in self.challenges:
            return _json({"error": "invalid_grant"}, 400)
        return _json(
            {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r1"}
        )

    def _mcp(self, request: Received) -> bytes:
        if request.values("authorization") != [f"Bearer {TOKEN}"]:
            self.refused += 1
            where = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return reply(401, b"", ("WWW-Authenticate", where))
        if request.method != "POST":
            return reply(405)
        asked = json.loads(request.body)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": asked.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "locked", "version": "1"},
            },
            "tools/list": {
                "tools": [{"name": "open", "description": "Opens.", "inputSchema": {"type": "object"}}]
            },
            "tools/call": {"content": [{"type": "text", "text": "LOQUAT"}]},
        }
        if "id" not in asked:
            return reply(202)
        return _json({"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked["method"], {})})


def _json(value: dict[str, Any], status: int = 200) -> bytes:
    return reply(status, json.dumps(value).encode(), ("Content-Type", "application/json"))


@asynccontextmanager
async def oauth_server() -> AsyncIterator[OAuthServer]:
    async with httpd() as daemon:
        server = OAuthServer(daemon)

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(server.answer(daemon.received[-1]))
            await writer.drain()

        daemon.otherwise = answer
        yield server
