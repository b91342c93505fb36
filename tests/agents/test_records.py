"""CLIs that a record describes: real programs, sandbox and files of their users; the model is scripted.

They are large, and fetched by `make agents` alone; what they say is in tests/unit/agents/recorded.
"""

import json
from typing import Any, Final

import pytest

from holdfast.agents.catalog.known import read_shipped
from holdfast.agents.evidence.evidence import Denied, WorkerStatus
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.sandbox.policy.credentials import credentials
from tests.support.agent_clis import requires_cli
from tests.support.arena import KEY, MODEL, PROMPT, Arena, Bench
from tests.support.model import MADE, digest
from tests.support.patience import patient
from tools.get_agents import RECORDS

LIMIT_S: Final = patient(150)
pytestmark = [pytest.mark.matrix, pytest.mark.timeout(patient(400))]
NAMES: Final = sorted(RECORDS)
each = pytest.mark.parametrize("name", NAMES)
OWN_KEY: Final = "sk-of-the-user-0123456789abcdef"


def _settings(name: str, url: str) -> dict[str, str]:
    """What somebody has in the home who configured this CLI, and gave it a key."""
    base = f"{url}/v1"
    document: dict[str, Any]
    mine: dict[str, Any]
    match name:
        case "goose":
            return {
                ".config/goose/config.yaml": "GOOSE_PROVIDER: openai\n"
                f"GOOSE_MODEL: {MODEL}\nOPENAI_HOST: {url}\n"
                "extensions:\n  mine:\n    type: stdio\n    enabled: true\n    name: mine\n"
                "    cmd: touch\n    args: [notified]\n    timeout: 10\n",
                ".config/goose/secrets.yaml": f"OPENAI_API_KEY: {OWN_KEY}\n",
            }
        case "cline":
            kind = "openai-compatible"
            settings = {"provider": kind, "model": MODEL, "apiKey": OWN_KEY, "baseUrl": base}
            entry = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
            document = {"version": 1, "lastUsedProvider": kind, "modes": {}, "providers": {kind: entry}}
            return {".cline/data/settings/providers.json": json.dumps(document)}
        case "continue":
            model = {"name": "m", "provider": "openai", "model": MODEL, "apiBase": base, "apiKey": OWN_KEY}
            document = {
                "name": "mine",
                "version": "1.0.0",
                "schema": "v1",
                "models": [{**model, "roles": ["chat"]}],
            }
            return {".continue/config.yaml": json.dumps(document)}  # which is YAML as well
        case "kilo":
            mine = {"npm": "@ai-sdk/openai-compatible", "name": "Mine", "options": {"baseURL": base}}
            document = {
                "model": f"mine/{MODEL}",
                "provider": {"mine": {**mine, "models": {MODEL: {}}}},
                "mcp": {"mine": {"type": "local", "command": ["touch", "notified"]}},
            }
            return {
                ".config/kilo/kilo.json": json.dumps(document),
                ".local/share/kilo/auth.json": json.dumps({"mine": {"type": "api", "key": OWN_KEY}}),
            }
        case "pi":
            mine = {"baseUrl": base, "api": "openai-completions", "models": [{"id": MODEL}]}
            document = {"providers": {"mine": {**mine, "apiKey": OWN_KEY}}}
            return {
                ".pi/agent/models.json": json.dumps(document),
                ".pi/agent/settings.json": json.dumps({"defaultProvider": "mine", "defaultModel": MODEL}),
            }
        case _:
            return {}


def place(stage: Arena, name: str, bench: Bench) -> dict[str, str]:
    """The variables with which the program is found, by the name that its record says."""
    folder = bench.home.parent / "bin"
    folder.mkdir()
    (folder / read_shipped()[name].binary).symlink_to(requires_cli(name))
    return {"PATH": f"{folder}:{stage.path}", "HOME": str(bench.home), "LANG": "C.UTF-8"}


async def start(stage: Arena, name: str, bench: Bench, **more: Any) -> FollowedWorker:
    env = place(stage, name, bench)
    secret = credentials(str(bench.home), granted=())
    wish = WorkerSpec(
        agent=name, cwd=str(bench.work), env=env, prompt=PROMPT, secret=secret, private_tmp=True, **more
    )
    return await stage.supervisor.run(wish)


async def ended(stage: Arena, worker: FollowedWorker) -> WorkerStatus:
    status = await stage.until(worker, ended=True, limit_s=LIMIT_S)
    assert worker.done.is_set(), status
    return status


@each
async def test_a_described_cli_does_its_work_and_a_denial_is_seen(stage: Arena, name: str) -> None:
    bench = stage.bench()
    stage.model.command = f"echo made > {MADE}; touch /usr/made-by-a-worker"
    worker = await start(stage, name, bench, base=stage.model.url("write"), model=MODEL, key=KEY)
    status = await ended(stage, worker)
    assert status.state in ("completed", "failed"), status
    assert (bench.work / MADE).read_text() == "made\n", (status, worker.record.given)
    denied = {item.claim.path for item in worker.evidence() if isinstance(item.claim, Denied)}
    assert "/usr/made-by-a-worker" in denied, status


@each
async def test_a_described_cli_that_is_refused_by_its_provider_is_told_so(stage: Arena, name: str) -> None:
    bench = stage.bench()
    worker = await start(stage, name, bench, base=stage.model.url("401"), model=MODEL, key=KEY)
    status = await ended(stage, worker)
    assert (status.state, status.failure) == ("failed", "auth"), status


@pytest.mark.parametrize("name", [name for name in NAMES if _settings(name, "")])
async def test_a_described_cli_that_is_configured_works_at_the_first_try(stage: Arena, name: str) -> None:
    bench = stage.bench()
    for path, text in _settings(name, stage.model.url("hello")).items():
        (bench.home / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.home / path).write_text(text)
        (bench.home / path).chmod(0o600)
    before = len(stage.model.requests)
    worker = await start(stage, name, bench)
    status = await ended(stage, worker)
    assert (status.state, status.failure) == ("completed", None), (status, worker.record.given)
    sent = {request.credential for request in stage.model.requests[before:]} - {None, ""}
    assert sent == {digest(OWN_KEY)}
    assert not (bench.work / "notified").exists(), "what its settings would start does not enter"
