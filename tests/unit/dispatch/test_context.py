"""What the workers and scripts of a run are given."""

from pathlib import Path

import msgspec
import pytest

from holdfast.dispatch.rules.profiles import WorkerProfile
from tests.support.dispatch import a_run, a_task
from tests.support.fakes import Scene


@pytest.mark.parametrize(("hosts", "named"), [({}, None), ({"a.test": "allow"}, ["a.test"])])
async def test_nobody_is_asked_about_hosts_of_a_script_nor_has_that_the_rest_of_the_network(
    scene: Scene,
    hosts: dict[str, str | bool | list[str] | dict[str, str]],
    named: list[str] | None,
    tmp_path: Path,
) -> None:
    profile = WorkerProfile(name="p", command=("mine",), hosts=hosts, ask_network=True)
    words = (a_run(), a_task(), profile, tmp_path)
    worker = scene.context.worker_spec(*words, "do it", tmp_path / "grant")
    assert worker.hosts is not None
    assert (worker.network, worker.hosts.ask_timeout_ms) == (None, 600_000)
    script = scene.context.script_spec(*words, "setup", "make", 1.0)
    assert script.network is False
    assert (script.hosts and script.hosts.allow) == named
    assert script.hosts is None or script.hosts.ask_timeout_ms is msgspec.UNSET
