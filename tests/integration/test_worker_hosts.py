"""Workers that reach hosts by name: what they are refused, what one grant changes, and what went out."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator

import pytest

from holdfast.agents.sdk import Workers
from holdfast.errors import UsageError
from holdfast.wire.permissions import AllowedHosts
from tests.integration.test_worker_commands import place
from tests.support.patience import patient
from tests.support.tiers import asyncio_first
from tests.support.webhosts import WebHosts, web_hosts

__all__ = ["asyncio_first"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

WAIT = f"{patient(20):.0f}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebHosts]:
    with web_hosts(tmp_path_factory.mktemp("hosts")) as found:
        yield found


async def test_a_refused_host_is_named_and_the_grant_that_is_printed_is_enough(hosts: WebHosts) -> None:
    port = hosts.ports["plain"]
    where = {"api.test": "127.0.0.1", "more.test": "127.0.0.1"}
    known = AllowedHosts([f"api.test:{port}"], private=True, addresses=where)
    script = " && ".join(f"curl -sSf -m {WAIT} http://{name}:{port}/page" for name in where)
    async with place() as here, Workers.connect(here.home) as workers:
        worker = await workers.run("shell", cwd=str(here.work), prompt=script, hosts=known)
        assert (worker.report.network, worker.report.hosts) == (False, [f"api.test:{port}"])
        assert all("by name" in line for line in worker.report.by_name)
        assert worker.report.by_name
        refused = await worker.wait()
        assert refused.state == "failed"
        [denial] = refused.denials
        assert (denial.access, denial.path, denial.grant) == (
            "connect",
            "more.test",
            "--allow-host more.test",
        )
        assert denial.rule == "no rule allows it"
        assert refused.traffic is not None
        [row] = refused.traffic.sent
        assert (row.host, row.port, row.connections) == ("api.test", port, 1)
        assert row.bytes_received > 50
        assert [row.host for row in refused.traffic.refused] == ["more.test"]
        assert [os.path.basename(row.program or "") for row in refused.traffic.refused] == ["curl"]
        told = (await worker.why()).why
        assert f"of the network it reaches api.test:{port}, and nothing else" in told
        assert any("more.test" in line and "--allow-host more.test" in line for line in told), told
        more = await worker.grant(allow_host=[f"more.test:{port}"])
        assert more.report.hosts == [f"api.test:{port}", f"more.test:{port}"]
        done = await more.wait()
        assert (done.state, done.denials) == ("completed", [])
        with pytest.raises(UsageError, match="every host"):
            await more.grant(allow_host=["x.test"], network=True)


async def test_the_command_line_has_hosts_of_the_loopback_and_says_what_holds(hosts: WebHosts) -> None:
    port = hosts.ports["plain"]
    fetch = f"curl -sSf -m {WAIT} http://127.0.0.1:{port}/page"
    async with place() as here:

        def run(id: str, *options: str) -> dict[str, object]:
            said = here.command("run", "shell", "--id", id, "--json", *options, fetch)
            return dict(json.loads(said.stdout.splitlines()[-1]))

        rule = f"127.0.0.1:{port}"
        one = await asyncio.to_thread(run, "one", "--allow-host", rule)
        assert (one["state"], one["network"], one["hosts"]) == ("completed", False, [rule])
        assert one["traffic"]["sent"][0]["host"] == "127.0.0.1"  # type: ignore[index]
        other = await asyncio.to_thread(run, "two", "--allow-host", f"127.0.0.1:{port + 1}")
        assert other["state"] == "failed", "a port that was not allowed is not there"
        whole = await asyncio.to_thread(run, "three")
        assert (whole["state"], whole["network"]) == ("completed", True), "nobody knows a shell's provider"
        both = await asyncio.to_thread(
            here.command, "run", "shell", "--network", "on", "--allow-host", "a.test", "true"
        )
        assert both.returncode == 2
        assert "every host is reached" in both.stderr


async def test_a_worker_has_rules_about_requests_and_the_hosts_of_its_users_settings(
    hosts: WebHosts,
) -> None:
    """Of `--allow-host URL` and `--allow-net`; what lies in its workspace says nothing, and is told."""
    plain, base = hosts.ports["plain"], f"https://tls.test:{hosts.ports['tls']}"
    where = dict.fromkeys(("tls.test", "api.test", "evil.test"), "127.0.0.1")
    known = AllowedHosts([f"GET {base}/v1/"], private=True, addresses=where)
    curl = f"curl -sS -m {WAIT} -w '%{{http_code}} '"
    script = (
        f"{curl} http://api.test:{plain}/npm; {curl} {base}/v1/a; {curl} -X PUT {base}/v1/a; "
        f"{curl} http://evil.test:{plain}/; exit 3"
    )
    async with place() as here, Workers.connect(here.home) as workers:
        user = here.work.parent / "user"
        user.mkdir()
        for folder, name in ((user, "api.test"), (here.work, "evil.test")):
            (folder / ".npmrc").write_text(f"registry=http://{name}:{plain}/npm/\n", "utf-8")
        env = {"HOME": str(user), "PATH": "/usr/bin:/bin", "SSL_CERT_FILE": str(hosts.authority)}
        worker = await workers.run(
            "shell", cwd=str(here.work), prompt=script, env=env, hosts=known, allow_net=["npm"]
        )
        done = await worker.wait()
        said = (await worker.logs(64 * 1024)).decode()
        assert f"preset npm: api.test:{plain}, from {user}/.npmrc" in done.by_name
        assert done.hosts == [f"GET {base}/v1/", f"api.test:{plain}"]
        assert ("welcome /npm" in said, "welcome /v1/a" in said, said.count("403 ")) == (True, True, 1), said
        grants = {denial.path: denial.grant for denial in done.denials}
        assert grants[base.removeprefix("https://")] == f"--allow-host 'PUT {base}/v1/a'"
        assert grants["evil.test"] == "--allow-host evil.test"
        with pytest.raises(UsageError, match="nothing outside of the workspace says which hosts cargo"):
            await workers.run("shell", cwd=str(here.work), prompt="true", env=env, allow_net=["cargo"])
