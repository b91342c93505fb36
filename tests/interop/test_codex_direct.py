"""The Codex CLI's executor and ours dial our host, without a relay, with signed requests."""

import asyncio
from pathlib import Path

import pytest

from tests.support.certificates import certify, tls_of_old
from tests.support.codex import requires_codex
from tests.support.cut import way_to
from tests.support.hosts import KEY, OURS, direct_executor, direct_host
from tests.support.patience import patient

LIMIT_S = patient(30.0)

__all__ = ["tls_of_old"]


def argv_of(whose: str) -> tuple[str, ...]:
    return OURS if whose == "ours" else (str(requires_codex()), "exec-server")


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_a_host_runs_commands_on_an_executor_that_dials_it_and_goes_on_after_a_cut(
    whose: str, tmp_path: Path
) -> None:
    """Also what is large, both ways; none of the keys is to be seen by a command, or in a log."""
    folder = tmp_path / "executor"
    async with (
        direct_host() as host,
        way_to(host.url) as way,
        direct_executor(argv_of(whose), folder, way.url.replace("ws", "http")),
        asyncio.timeout(LIMIT_S),
    ):
        environment = await host.get("box")
        done = await environment.run(["/bin/sh", "-c", "echo hi; env; exit 4"], cwd=folder)
        assert done.code == 4
        assert done.stdout.startswith(b"hi\n")
        assert KEY.secret.encode() not in done.stdout
        await environment.files.write(folder / "large", bytes(20_000_000))
        assert len(await environment.files.read(folder / "large")) == 20_000_000
        script = "echo begun; until test -e go; do sleep 0.05; done; echo ended; exit 7"
        process = await environment.start(["/bin/sh", "-c", script], cwd=folder)
        await anext(aiter(process))
        way.cut()
        (folder / "go").touch()  # it ends while nobody can be told
        ended = await process.wait()
        assert (ended.code, ended.stdout) == (7, b"begun\nended\n")
        assert await host.get("box") is environment
    assert KEY.secret not in (folder / "executor.log").read_text("utf-8")


@pytest.mark.usefixtures("tls_of_old")
@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_a_host_with_a_certificate_is_dialled_by_tls(whose: str, tmp_path: Path) -> None:
    certified = certify(tmp_path, [])
    folder = tmp_path / "executor"
    async with (
        direct_host(tls=certified.serving()) as host,
        direct_executor(argv_of(whose), folder, host.url, **certified.trusting),
        asyncio.timeout(LIMIT_S),
    ):
        assert host.url.startswith("https://127.0.0.1:")
        done = await (await host.get("box")).run(["/bin/sh", "-c", "echo hi; exit 4"], cwd=folder)
        assert (done.code, done.stdout) == (4, b"hi\n")
