"""`holdfast open`: a link that works once, the cookie that it leaves, and the port that a bookmark names."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from holdfast.board.store import Store
from holdfast.local import peers
from holdfast.web import cookies, server
from holdfast.web.entrance import PORT
from tests.support import warm
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, Backend
from tests.support.web import Dashboard, board, dashboard, path

__all__ = ["board", "path"]

WAIT_S: Final = patient(30)
PAGE: Final = {"x-holdfast": "page"}


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # what the command runs on


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def browser(here: Dashboard, **headers: str) -> httpx2.AsyncClient:
    """One that has neither the token nor anything else yet."""
    return httpx2.AsyncClient(base_url=here.base, headers=headers, timeout=WAIT_S, trust_env=False)


def typed(home: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], "HOME": str(home)} | more
    return warm.run(["open", "--json", "--home", str(home), *words], env=env, cwd=os.getcwd(), timeout=WAIT_S)


def link_of(home: Path) -> str:
    done = typed(home, "--print")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["link"])


async def boards(client: httpx2.AsyncClient, **headers: str) -> int:
    return (await client.get("/api/boards", headers=headers)).status_code


async def test_a_link_works_once_and_leaves_a_cookie_that_lets_the_page_in(
    board: Store, path: str, home: Path
) -> None:
    async with dashboard(path, home) as here, browser(here) as client, browser(here) as late:
        assert await boards(client, **PAGE) == 401
        link = link_of(home)
        entered = await client.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert cookie.startswith(cookies.cookie_name(str(home)))
        assert await boards(client, **PAGE) == 200
        assert await boards(client) == 401, "not without what only our page sends"
        assert await boards(client, **PAGE, origin="http://127.0.0.1:1") == 403
        again = await late.get(link)
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        assert "holdfast open" in again.text
        assert await boards(late, **PAGE) == 401
        key = (home / cookies.KEY).stat()
        assert (key.st_mode & 0o777, key.st_uid) == (0o600, os.getuid())


async def test_the_cookie_is_good_after_a_restart_and_not_for_another_home(
    board: Store, path: str, home: Path, tmp_path: Path
) -> None:
    async with dashboard(path, home) as here, browser(here) as client:
        link = link_of(home)
        await client.get(link)
        [(name, value)] = client.cookies.items()
        port = int(here.base.rpartition(":")[2])
    async with dashboard(path, home, port=port) as here, browser(here, cookie=f"{name}={value}") as client:
        assert await boards(client, **PAGE) == 200
        assert (await client.get(link)).status_code == 401
    other = tmp_path / "other"
    async with dashboard(path, other) as here, browser(here, cookie=f"{name}={value}") as client:
        assert await boards(client, **PAGE) == 401
        renamed = f"{cookies.cookie_name(str(other))}={value}"
        assert await boards(client, **PAGE, cookie=renamed) == 401
    (home / cookies.KEY).unlink()
    async with dashboard(path, home) as here, browser(here, cookie=f"{name}={value}") as client:
        assert await boards(client, **PAGE) == 401


async def test_another_user_can_use_neither_the_link_nor_the_cookie(
    board: Store, path: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(path, home) as here, browser(here) as client:
        await client.get(link_of(home))
        link = link_of(home)
        assert await boards(client, **PAGE) == 200
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(peers, "uid_of_peer", lambda *_: os.getuid() + 1)
            assert await boards(client, **PAGE) == 401
            assert (await client.get(link)).status_code == 401
            elsewhere.setattr(peers, "uid_of_peer", lambda *_: None)
            assert await boards(client, **PAGE) == 401
        assert (await client.get(link)).status_code == 303


async def test_a_taken_port_is_said_and_a_free_one_used(board: Store, path: str, home: Path) -> None:
    said: list[str] = []
    told: list[Any] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = server.DashboardOptions(path, home, "me", port=port, fallback=True)
        with server._listen(options, said.append) as listener:
            told.append(listener.getsockname()[1])
    assert told != [port]
    assert str(port) in said[0]
    said.clear()
    with server._listen(
        server.DashboardOptions(path, home, "me", port=port, fallback=True), said.append
    ) as listener:
        assert listener.getsockname()[1] == port
    assert said == []


def test_the_usual_port_is_none_that_a_kernel_gives_away() -> None:
    low, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()
    assert 1024 < PORT < int(low)


def test_without_a_dashboard_it_says_so(home: Path) -> None:
    done = typed(home)
    assert done.returncode == 3
    assert "holdfast up" in json.loads(done.stdout)["error"]["remedy"]


async def test_a_browser_is_not_waited_for_and_without_one_the_link_is_printed(
    board: Store, path: str, home: Path, tmp_path: Path
) -> None:
    async with dashboard(path, home) as here, browser(here) as client:
        nothing = tmp_path / "nothing"
        nothing.mkdir()
        for name in ("open", "xdg-open"):  # of Debian, where both are there without a screen
            (nothing / name).symlink_to("/bin/true")
        said = json.loads(typed(home, PATH=str(nothing)).stdout)
        assert (said["opened"], said["link"].startswith(here.base)) == (False, True)
        seen = tmp_path / "seen"
        os.mkfifo(seen)
        program = tmp_path / "browser"
        program.write_text(f'#!/bin/sh\necho "$1" > {seen}\n', "utf-8")  # waits until somebody reads that
        program.chmod(0o700)
        said = json.loads(typed(home, BROWSER=str(program)).stdout)
        assert (said["opened"], said["link"]) == (True, None)
        link = seen.read_text("utf-8").strip()
        assert (await client.get(link)).status_code == 303
