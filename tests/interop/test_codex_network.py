"""The real Codex CLI with its managed network: the exec server starts the proxy, filters, asks and tells.

The Codex CLI's own server sits the same examination (`-k theirs`).
"""

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast.client.events.result import Result
from holdfast.client.networkfilter import NetworkFilter
from holdfast.wire.network import CredentialProvider
from tests.support.codex import CodexClient, requires_codex, requires_its_shell
from tests.support.httpd import httpd, reply
from tests.support.provider import command, turns
from tests.support.stage import ExamServer, Stage

PROFILE = """
[permissions.filtered]
extends = ":workspace"
[permissions.filtered.network]
enabled = true
[permissions.filtered.network.domains]
"localhost" = "allow"
"denied.example" = "deny"
"""
FILTERED: Final[dict[str, Any]] = {
    "features": ["network_proxy"],
    "config": PROFILE,
    "profile": "filtered",
}


@pytest.fixture
def stage(server: ExamServer) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        yield Stage(CodexClient(requires_codex(), Path(folder).resolve()), server.process, ours=server.ours)


async def test_codex_has_the_executor_filter_the_network_of_its_commands(stage: Stage) -> None:
    """Only by the proxy, only to the listed host, and codex is told of every decision."""
    async with httpd({"/page": reply(body=b"hello")}) as web:
        ask = f"""
        echo "active:$CODEX_NETWORK_PROXY_ACTIVE"
        through() {{
            p=${{HTTP_PROXY#http://}}; exec 3<>/dev/tcp/${{p%:*}}/${{p#*:}}
            printf 'GET http://%s HTTP/1.1\\r\\nHost: %s\\r\\n' "$1" "${{1%%/*}}" >&3
            printf 'Connection: close\\r\\n\\r\\n' >&3
            echo "$1: $(tr -d '\\r' <&3 | sed -n '1p;$p' | tr '\\n' ' ')"
        }}
        through localhost:{web.port}/page
        through blocked.invalid/
        through denied.example/
        (exec 3<>/dev/tcp/127.0.0.1/{web.port}) 2>/dev/null && echo DIRECTLY
        true
        """
        script = turns([command("c1", shlex.join(["bash", "-c", ask]))])
        async with stage.connected(script, **FILTERED) as (model, recorder):
            await stage.client.execute(recorder.url)
    said = model.output("c1")
    assert "active:1\n" in said
    assert f"localhost:{web.port}/page: HTTP/1.1 200 " in said, said
    assert [line for line in said.splitlines() if line.rstrip().endswith("hello")]
    assert "blocked.invalid/: HTTP/1.1 403" in said
    assert "denied.example/: HTTP/1.1 403" in said
    assert "DIRECTLY" not in said
    [started] = recorder.sent("process/start", kind="request")
    assert started.params["enforceManagedNetwork"] is True
    assert started.params["networkProxy"]["proxy"]["enabled"] is True
    told = [entry.params for entry in recorder.sent("network/policyDecision", by="server")]
    assert [(one["host"], one["decision"], one["reason"]) for one in told] == [
        ("localhost", "allow", "allow"),
        ("blocked.invalid", "deny", "not_allowed"),
        ("denied.example", "deny", "denied"),
    ]


MASKED: Final = """
[shell_environment_policy]
set = { OPENAI_API_KEY = "sk-proj-zQ8vT3kLmN5pR7wXyB2c" }
"""


async def test_codex_has_the_executor_mask_the_keys_of_its_commands(stage: Stage) -> None:
    """The command has a placeholder, and certificates of the executor that it is to trust.

    In a login shell, which codex starts, the reference leaves the key as it is.
    """
    if not stage.ours:
        requires_its_shell()
    wish = FILTERED | {"features": ["network_proxy", "credential_masking"], "config": PROFILE + MASKED}
    script = turns([command("c1", 'echo "key:$OPENAI_API_KEY"; test -s "$SSL_CERT_FILE" && echo trusted')])
    async with stage.connected(script, **wish) as (model, recorder):
        await stage.client.execute(recorder.url)
    said = model.output("c1")
    [started] = recorder.sent("process/start", kind="request")
    assert started.params["networkProxy"]["proxy"]["credentialMasking"] is True
    assert "key:sk-proj-" in said
    assert ("zQ8vT3kLmN5pR7wXyB2c" in said) is not stage.ours
    assert "trusted" in said


DESCRIBED: Final = """
[features.network_proxy]
enabled = true
[features.network_proxy.credentials.mine]
env = ["MY_KEY"]
patterns = ["mine_[A-Za-z0-9]+"]
url_prefixes = ["https://api.mine.test/v1/"]
auth = ["bearer"]
[shell_environment_policy]
set = { MY_KEY = "mine_zQ8vT3kLmN5pR7wXyB2c" }
"""


async def test_codex_describes_keys_of_its_own_to_the_executor(stage: Stage) -> None:
    """By `credentialProviders`; the command has a placeholder. The reference leaves the key as it is here."""
    if not stage.ours:
        requires_its_shell()
    wish = FILTERED | {"features": ["credential_masking"], "config": PROFILE + DESCRIBED}
    script = turns([command("c1", 'echo "key:$MY_KEY"; test -s "$SSL_CERT_FILE" && echo trusted')])
    async with stage.connected(script, **wish) as (model, recorder):
        await stage.client.execute(recorder.url)
    said = model.output("c1")
    [started] = recorder.sent("process/start", kind="request")
    assert started.params["networkProxy"]["proxy"]["credentialProviders"] == {
        "mine": {
            "env": ["MY_KEY"],
            "patterns": ["mine_[A-Za-z0-9]+"],
            "url_prefixes": ["https://api.mine.test/v1/"],
            "auth": ["bearer"],
        }
    }
    assert "key:" in said
    assert ("mine_zQ8vT3kLmN5pR7wXyB2c" in said) is not stage.ours
    assert "trusted" in said


async def test_our_client_has_either_server_mask_keys(stage: Stage) -> None:
    """Both take what it sends; the reference, started like this, leaves the key as it is."""
    if not stage.ours:
        requires_its_shell()
    keys = CredentialProvider(["MY_KEY"], ["mine_.+"], ["https://api.mine.test/"], auth=["bearer"])
    env = {"PATH": "/usr/bin:/bin", "MY_KEY": "mine_zQ8vT3kLmN5pR7wXyB2c"}
    async with holdfast.connect(stage.server.url) as environment:

        async def run(providers: dict[str, CredentialProvider]) -> Result:
            network = NetworkFilter(["api.mine.test"], mask_keys=True, key_providers=providers)
            policy = holdfast.Policy.read_only()
            script = ["/bin/sh", "-c", 'test -s "$SSL_CERT_FILE" && echo "trusted $MY_KEY"']
            return await environment.run(script, cwd="/", env=env, policy=policy, network=network)

        done = await run({"mine": keys})
        assert done.code == 0, done
        assert done.stdout.startswith(b"trusted ")
        assert (b"mine_zQ8vT3kLmN5pR7wXyB2c" in done.stdout) is not stage.ours
