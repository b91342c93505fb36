"""Workers that reach hosts by name: what they are refused, what one grant changes, and what went out."""

import asyncio
import json
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
