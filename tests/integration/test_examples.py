"""The examples run as their pages say, and the pages show nothing that is not in them."""

import asyncio
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.patience import patient
from tests.support.servers import holdfast_server
from tests.support.tiers import ASYNCIO, Backend

ROOT: Final = Path(__file__).resolve().parents[2]
RUN_S: Final = patient(50.0)
STDIO: Final = f"program = {sys.executable!r}\nargs = ['-m', 'holdfast', 'serve', '--listen', 'stdio']"
EXAMPLES: Final = sorted((ROOT / "examples").glob("*.py"))
PAGES: Final = sorted((ROOT / "docs" / "howto").glob("*.md"))


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # each script has a loop of its own


class Done(NamedTuple):
    code: int | None
    lines: list[str]
    errors: str


async def ran(*words: str | Path, cwd: Path = ROOT) -> Done:
    """A Python script, from its start to its end; a warning is an error there too."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=cwd,
        env={**os.environ, "PATH": path}, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(RUN_S):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Done(process.returncode, stdout.decode().splitlines(), stderr.decode())


async def test_the_orchestrator_prints_a_report_and_ends_within_its_minute() -> None:
    done = await ran("examples/one_minute_orchestrator.py")
    assert done.errors == ""
    assert done.lines[:3] == ["check     ok", "test      ok", "          1 passed"]
    assert done.lines[3] == "publish   failed with 1"
    assert any("denied: write /usr/share/greet.sh" in line for line in done.lines)
    assert done.code == 1


async def test_a_build_goes_on_while_its_link_is_cut() -> None:
    done = await ran("examples/resumable_build.py")
    assert done.errors == ""
    assert done.lines.count("--- the cable is pulled out") == 2
    steps = [line for line in done.lines if line.startswith("step")]
    assert steps == [f"step {number} of 12" for number in range(1, 13)]
    assert done.lines[-1] == "the build ended with 0: 12 steps, 12 different ones"
    assert done.code == 0


async def test_work_is_fanned_out_over_the_environments_of_a_file(tmp_path: Path) -> None:
    squares = [f"{f'echo $(({number} * {number}))':20}{number * number:<8}" for number in range(1, 13)]
    async with holdfast_server(tmp_path / "home") as server:
        places = {"near": STDIO, "far": f"url = {server.url!r}", "gone": "program = '/no/such/server'"}
        text = "\n".join(f"[[environments]]\nid = '{name}'\n{where}" for name, where in places.items())
        (tmp_path / "environments.toml").write_text(f"include_local = false\n{text}", "utf-8")
        done = await ran("examples/fan_out.py", tmp_path / "environments.toml")
    assert [line[:28] for line in done.lines] == squares
    assert {line[28:] for line in done.lines} <= {"near", "far"}
    assert done.errors.startswith("gone is out: ")
    assert done.code == 0


async def test_the_environments_of_the_examples_are_three_that_work() -> None:
    done = await ran("examples/fan_out.py", "examples/environments.toml")
    assert (done.code, done.errors, len(done.lines)) == (0, "", 12)
    assert set(Counter(line[28:] for line in done.lines)) <= {"one", "two", "three"}


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def words(text: str) -> str:
    """Without its layout, which depends on how deep it is indented."""
    return " ".join(text.split())


def test_every_example_has_its_page_which_shows_nothing_else() -> None:
    for path in EXAMPLES:
        [page] = [page for page in PAGES if f"examples/{path.name})" in page.read_text("utf-8")]
        assert blocks(page), page
        for block in blocks(page):
            assert words(block) in words(path.read_text("utf-8")), f"{page.name} shows what is not there"


async def test_the_lines_in_the_readme_run(tmp_path: Path) -> None:
    [lines] = blocks(ROOT / "README.md")
    assert len([line for line in lines.splitlines() if line]) <= 10
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "Makefile").write_text("test:\n\t@echo tested\n", "utf-8")
    async with holdfast_server(tmp_path / "home") as server:
        script = lines.replace("ws://127.0.0.1:7000", server.url)
        script = script.replace("/home/you/project", str(tmp_path / "project"))
        assert script.count(server.url) == 1
        (tmp_path / "readme.py").write_text(script, "utf-8")
        done = await ran(tmp_path / "readme.py")
    assert (done.code, done.errors) == (0, "")
    assert done.lines[0] == "tested"
    assert done.lines[1].startswith("0 None ")
