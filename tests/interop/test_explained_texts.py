"""What the real Codex prints when something is wrong is explained by the right row."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from holdfast.doctor.explain.explanation import explain
from tests.support.codex import CodexClient, requires_codex
from tests.support.patience import patient
from tests.support.provider import Item, command, patch, scripted, turns
from tests.support.servers import isolated_environment

TIMEOUT_S = patient(60)
DEAD: Final = (
    'model_provider = "dead"\n'
    "[model_providers.dead]\n"
    'name = "dead"\nbase_url = "http://127.0.0.1:9/v1"\nwire_api = "responses"\n{key}'
    "request_max_retries = 0\nstream_max_retries = 1\n"
    "[features]\nunbounded_connection_retries = false\n"
)
# The user keeps their number: as root of a namespace they would meet the folder that Codex made in /tmp for
# the real root, which is not theirs. Bubblewrap refuses to run with the capabilities that the limit needs.
NO_NAMESPACES: Final = (
    *("unshare", "--map-current-user", "--keep-caps", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --inh-caps=-all --ambient-caps=-all "$@"',
    "sh",
)
LIST: Final = ("features", "list")
EXEC: Final = ("exec", "--skip-git-repo-check", "hello")
CONFINED: Final = ("sandbox", "-c", 'sandbox_mode="workspace-write"', "--")
HANDSHAKE: Final = (
    {
        "id": 0,
        "method": "initialize",
        "params": {"clientInfo": {"name": "interop", "title": "interop", "version": "1"}},
    },
    {"method": "initialized"},
)


class Case(NamedTuple):
    """A mistake, and the row that must explain what Codex says to it."""

    id: str
    arguments: tuple[str, ...]
    config: str | bytes = ""
    wrapper: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()  # {base} is the directory of the test


CASES: Final = (
    Case("config.duplicate", LIST, 'sandbox_mode = "read-only"\nsandbox_mode = "read-only"\n'),
    Case(
        "config.duplicate", LIST, "sandbox_workspace_write.network_access = true\n[sandbox_workspace_write]\n"
    ),
    Case("config.mark", LIST, b'a = 1\n\xef\xbb\xbfmodel = "x"\n'),
    Case("config.variant", LIST, 'sandbox_mode = "nope"\n'),
    Case("config.variant", EXEC, 'sandbox_mode = "nope"\n'),
    Case("config.type", LIST, '[features]\nsandbox_mode = "danger-full-access"\n'),
    Case("config.permissions", LIST, "[permissions.x.filesystem]\nsandbox_mode = 3\n"),
    Case("config.unreadable", LIST, b'a = "\xff\xfe"\n'),
    Case("config.syntax", LIST, "a = \n"),
    Case("config.unknown", ("exec", "--strict-config", "hello"), '[tui]\nsandbox_mode = "read-only"\n'),
    Case("config.unknown", ("app-server", "--print-startup-config", "--strict-config"), "sandbox_mod = 1\n"),
    Case("config.profile", EXEC, 'profile = "x"\n'),
    Case("config.profiles", ("exec", "--profile", "x", "hello"), '[profiles.x]\nmodel = "x"\n'),
    Case("config.approval", EXEC, 'approval_policy = "untrusted"\n'),
    Case("config.ignored", EXEC, DEAD.format(key="") + '[history]\nsandbox_mode = "read-only"\n'),
    Case("permissions.unselected", EXEC, "[permissions.x]\n"),
    Case("permissions.profile", EXEC, 'default_permissions = "x"\n'),
    Case("permissions.profile", EXEC, 'default_permissions = "x"\n[permissions.y]\nextends = ":workspace"\n'),
    Case(
        "permissions.profile",
        EXEC,
        'default_permissions = "x"\n[permissions.x]\nextends = ":danger-full-access"\n',
    ),
    Case("codex.home", LIST, environ=(("CODEX_HOME", "{base}/none"),)),
    Case("codex.home", LIST, environ=(("CODEX_HOME", "/etc/passwd"),)),
    Case("codex.temporary-home", LIST, environ=(("TMPDIR", "{base}"),)),
    Case("codex.provider", EXEC, 'model_provider = "zz"\n'),
    Case("codex.key", EXEC, DEAD.format(key='env_key = "NO_SUCH_KEY"\n')),
    Case("codex.login", ("login", "status")),
    Case("codex.option", ("exec", "--full-auto", "hello")),
    Case("codex.option", ("exec", "-s", "nope", "hello")),
    Case("trust.directory", ("exec", "hello")),
    Case("provider.retry", EXEC, DEAD.format(key="")),
    Case("provider.unreachable", EXEC, DEAD.format(key="")),
    Case("codex.landlock-deprecated", EXEC, DEAD.format(key="") + "use_legacy_landlock = true\n"),
    Case("codex.landlock", ("sandbox", "-c", "features.use_legacy_landlock=true", "--", "true")),
    Case("codex.sandbox-word", ("sandbox", "linux", "true")),
    Case("codex.exec", ("sandbox", "--", "no-such-program")),
    Case(
        "codex.root-missing",
        (*CONFINED[:-1], "-c", 'sandbox_workspace_write.writable_roots=["no/such"]', "--", "true"),
    ),
    Case("git.protected", (*CONFINED, "git", "init")),
    Case("fs.erofs", (*CONFINED, "touch", "/etc/no-such-file")),
    Case("net.connect", (*CONFINED, "curl", "-sS", "http://127.0.0.1:9")),
    Case("net.dns", (*CONFINED, "curl", "-sS", "http://nobody.example")),
    Case("userns.enospc", ("sandbox", "--", "true"), wrapper=NO_NAMESPACES),
)


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that Codex does not take for a temporary one."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-interop-", dir="/var/tmp")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def client(base: Path) -> CodexClient:
    return CodexClient(requires_codex(), base)


def said(base: Path, case: Case, text: str = "") -> str:
    """Everything that Codex prints."""
    home = base / "client"
    written = case.config if isinstance(case.config, bytes) else case.config.encode()
    (home / ".codex" / "config.toml").write_bytes(written)
    done = subprocess.run(
        [*case.wrapper, str(requires_codex()), *case.arguments],
        input=text.encode(),
        env={
            **isolated_environment(home),
            **{name: value.format(base=base) for name, value in case.environ},
        },
        cwd=base / "workspace",
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}-{case.arguments[0]}")
def test_a_mistake_is_explained(base: Path, case: Case) -> None:
    told = said(base, case)
    assert case.id in {one.id for one in explain(told)}, told


def overheard(base: Path, client: CodexClient, config: str) -> str:
    """What the app server says until it answers the start of a thread."""
    client.configure("http://127.0.0.1:9/v1")
    file = base / "client" / ".codex" / "config.toml"
    file.write_text(config + file.read_text("utf-8"), "utf-8")
    process = subprocess.Popen(
        [str(requires_codex()), "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=isolated_environment(base / "client") | {"SCRIPT_KEY": "unused"},
        cwd=client.workspace,
    )
    limit = threading.Timer(TIMEOUT_S, process.kill)
    limit.start()
    start = {"id": 1, "method": "thread/start", "params": {"cwd": str(client.workspace)}}
    heard = []
    with process:
        try:
            assert process.stdin
            assert process.stdout
            for message in (*HANDSHAKE, start):
                process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                heard.append(line.decode())
                if json.loads(line).get("id") == 1:
                    break
        finally:
            limit.cancel()
            process.kill()
    return "".join(heard)


@pytest.mark.parametrize(
    ("config", "project", "expected"),
    [
        ("a = \n", None, {"config.defaults"}),
        (
            'sandbox_mode = "workspace-write"\n',
            'sandbox_mode = "danger-full-access"\n',
            {"trust.project", "trust.full-access"},
        ),
    ],
)
def test_what_the_app_server_only_mentions_is_explained(
    base: Path, client: CodexClient, config: str, project: str | None, expected: set[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(client.workspace)], check=True, timeout=TIMEOUT_S)
    if project is not None:
        (client.workspace / ".codex").mkdir()
        (client.workspace / ".codex" / "config.toml").write_text(project, "utf-8")
    heard = overheard(base, client, config)
    assert expected <= {one.id for one in explain(heard)}, heard


PATCH: Final = "*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch"
ALLOW_LIST: Final = (
    'network_proxy = true\n[permissions.listed]\nextends = ":workspace"\nnetwork.enabled = true\n'
    'network.domains = { "allowed.example" = "allow" }\n'
)


@pytest.mark.parametrize(
    ("call", "arguments", "more", "wrapper", "expected"),
    [
        (patch("p", PATCH), ("-s", "read-only"), "", (), {"codex.read-only"}),
        (patch("p", PATCH), ("-s", "workspace-write"), "", NO_NAMESPACES, {"codex.patch-helper"}),
        (command("c", "true"), ("-s", "workspace-write"), "", NO_NAMESPACES, {"userns.enospc"}),
        (
            command("c", "curl -sS http://other.example"),
            ("-c", 'default_permissions="listed"'),
            ALLOW_LIST,
            (),
            {"proxy.allowlist"},
        ),
    ],
    ids=["read-only", "patch-helper", "no-namespaces", "allow-list"],
)
async def test_a_tool_that_fails_while_codex_goes_on_is_explained(
    base: Path,
    client: CodexClient,
    call: Item,
    arguments: tuple[str, ...],
    more: str,
    wrapper: tuple[str, ...],
    expected: set[str],
) -> None:
    async with scripted(turns([call])) as model:
        client.configure(model.url, more=more)
        process = await asyncio.create_subprocess_exec(
            *wrapper, str(requires_codex()), "exec", "--json", "--skip-git-repo-check", *arguments, "Go.",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=isolated_environment(base / "client") | {"SCRIPT_KEY": "unused"}, cwd=client.workspace,
        )  # fmt: skip
        try:
            async with asyncio.timeout(TIMEOUT_S):
                told, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, told
    assert {one.id for one in explain(told.decode())} >= expected, told
