"""Links that are cut, delayed, split and half closed, hundreds of times in `make deep`: no process notices.

Every story runs two processes on one session through a proxy of its own. One says numbered blocks, whether
somebody listens or not, and keeps a copy on disk to compare with. The other answers every line it is told
with the same line. The story goes on until its proxy has cut as often as it should. A run fails with the
seeds of its stories; the same seed cuts at the same bytes.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import pytest

from holdfast import Closed, ConnectionLost, Environment, Exited, Output, Process
from tests.support.chaos import Chaos, chaos
from tests.support.codex import requires_codex
from tests.support.patience import patient
from tests.support.servers import ServerProcess, codex_server, holdfast_server
from tests.support.tiers import DEEP, sizes

T = TypeVar("T")


class Size(NamedTuple):
    """Of a run: stories at a time, and how often the link of each is cut."""

    stories: int
    cuts: int


FEW: Final = Size(stories=2, cuts=6)
MANY: Final = Size(stories=10, cuts=9)
MANY_ON_THE_REFERENCE: Final = Size(stories=10, cuts=6)  # it answers forty times as slowly
DEEP_RUNS: Final = 3  # on each transport: 2 transports x 3 runs x 10 stories x 9 cuts are 540
STORY_S: Final = patient(50.0)
CUT_EVERY_BYTES: Final = (1500, 6000)  # from a little more than the handshake of a resumed session on

# At most 900 blocks of 1000 bytes: less than a server keeps, so that nothing may be lost however long a link
# is down.
BLOCKS: Final = (
    "block=$(printf '%0984d' 0); i=0; "
    'while [ $i -lt 900 ] && [ ! -e stop ]; do printf "block %08d %s\\n" $i $block; i=$((i + 1)); '
    "sleep 0.05; done | tee copy"
)
LINES: Final = 'while read -r line; do [ "$line" = end ] && exit 7; echo "$line"; echo "$line" >&2; done'


@pytest.fixture(params=["ws", "unix"])
async def ours(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServerProcess]:
    listen = "ws://127.0.0.1:0" if request.param == "ws" else f"unix://{tmp_path}/server"
    async with holdfast_server(tmp_path / "home", listen=listen) as server:
        yield server


@pytest.mark.parametrize(
    ("run", "size"),
    [
        pytest.param(0, FEW, id="quick"),
        *(pytest.param(run, MANY, id=f"deep {run}", marks=DEEP) for run in range(DEEP_RUNS)),
    ],
)
async def test_nothing_is_lost_or_doubled_however_often_the_link_is_cut(
    run: int, size: Size, ours: ServerProcess, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    await tell_stories(ours.url, tmp_path, run, size)
    record_property("cuts", size.stories * size.cuts)


@sizes("size", quick=FEW, deep=MANY_ON_THE_REFERENCE)
async def test_nothing_is_lost_or_doubled_on_the_reference_either(
    size: Size, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with codex_server(requires_codex(), tmp_path / "home") as theirs:
        await tell_stories(theirs.url, tmp_path, DEEP_RUNS, size, late=True)
    record_property("cuts", size.stories * size.cuts)


async def tell_stories(url: str, folder: Path, run: int, size: Size, *, late: bool = False) -> None:
    """`late`: the server may tell of output after the exit, as the reference does now and then."""
    async with asyncio.TaskGroup() as stories:
        for number in range(size.stories):
            seed = run * MANY.stories + number
            (folder / str(seed)).mkdir()
            stories.create_task(tell(url, folder / str(seed), seed, size.cuts, late=late))


async def tell(url: str, folder: Path, seed: int, cuts: int, *, late: bool) -> None:
    async with mistreated(url, folder, seed, cuts) as proxy:
        try:
            async with asyncio.timeout(STORY_S), connected(proxy.url) as env:
                await story(env, folder, proxy, late=late)
            assert proxy.cuts == cuts
        except BaseException as exc:
            exc.add_note(f"seed {seed}: {proxy.cuts} cuts, {proxy.refusals} refusals on {url}")
            raise


def mistreated(url: str, folder: Path, seed: int, cuts: int) -> AbstractAsyncContextManager[Chaos]:
    """The proxy speaks the transport of the server."""
    place = urlsplit(url)
    unix = place.scheme == "unix"
    return chaos(
        Path(place.path) if unix else (str(place.hostname), place.port or 0),
        seed=seed,
        listen=folder / "proxy" if unix else None,
        cut_every_bytes=CUT_EVERY_BYTES,
        max_cuts=cuts,
        refuse=0.1,
        max_refuse_s=0.1,
    )


async def story(env: Environment, folder: Path, proxy: Chaos, *, late: bool) -> None:
    blocks = await insisting(lambda: env.start(["/bin/sh", "-c", BLOCKS], cwd=folder))
    lines = await insisting(lambda: env.start(["/bin/sh", "-c", LINES], cwd=folder, stdin=True))
    async with asyncio.TaskGroup() as readers:
        heard = readers.create_task(blocks.wait())
        read = readers.create_task(all_output(blocks))
        answered = readers.create_task(all_events(lines))
        ended = readers.create_task(lines.wait())
        told = await tell_lines(lines, proxy)
        (folder / "stop").touch()
    copy = (folder / "copy").read_bytes()
    assert hashlib.sha256(heard.result().stdout).digest() == hashlib.sha256(copy).digest()
    assert read.result() == copy
    assert (heard.result().code, heard.result().dropped_bytes) == (0, 0)
    events, end = answered.result(), ended.result()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    told_late = late and isinstance(events[-2], Output)
    ending = [event for event in events if not isinstance(event, Output)] if told_late else events[-2:]
    assert [type(event) for event in ending] == [Exited, Closed]
    assert (end.code, end.stdout, end.stderr) == (7, told, told)
    said = b"".join(event.data for event in events if isinstance(event, Output) and event.stream == "stdout")
    assert said == told


async def tell_lines(process: Process, proxy: Chaos) -> bytes:
    """Numbered lines, one after the other, until the proxy has had its cuts; all that was told."""
    told = b""
    while not proxy.calm:
        line = b"line %06d\n" % (len(told) // 12)
        await process.write(line)
        told += line
    await process.write(b"end\n")
    return told


async def all_output(process: Process) -> bytes:
    return b"".join([chunk async for chunk in process.stdout])


async def all_events(process: Process) -> list[Output | Exited | Closed]:
    return [event async for event in process]


async def insisting(call: Callable[[], Awaitable[T]]) -> T:
    """A call that was under way when the link died is not repeated by the client; here it may be."""
    while True:
        with contextlib.suppress(ConnectionLost):
            return await call()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Environment]:
    """As `holdfast.connect`; a first handshake that is cut leaves no session to resume, so it is repeated."""
    env = await insisting(lambda: Environment.open(url))
    try:
        yield env
    finally:
        await env.aclose()
