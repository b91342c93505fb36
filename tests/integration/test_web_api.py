"""The dashboard over loopback: who comes in, pages, moves, errors, a stream that is taken up again."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.board.database.database import Transaction
from holdfast.board.rules.assign import Places
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import NewTask
from holdfast.board.store import Store, open_store
from holdfast.errors import NotFound, StartupError
from holdfast.web import app, feed
from holdfast.web.app import ROUTES, STATIC
from tests.support.boards import claimed, made
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, Backend
from tests.support.web import WHO, Dashboard, board, dashboard, listening, path

__all__ = ["board", "path"]

WAIT_S = patient(30)
MANY = 20_000  # events: more than all buffers hold


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # what the command runs on


@pytest.fixture
async def served(board: Store, path: str, tmp_path: Path) -> AsyncIterator[Dashboard]:
    async with dashboard(path, tmp_path) as here:
        yield here


@pytest.fixture
async def client(served: Dashboard) -> AsyncIterator[httpx2.AsyncClient]:
    async with served.client() as client:
        yield client


async def answer(client: httpx2.AsyncClient, where: str, status: int = 200) -> dict[str, Any]:
    return answered(await client.get(where), status)


def answered(response: httpx2.Response, status: int = 200) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found = response.json()
    assert isinstance(found, dict)
    assert found["schemaVersion"] == 1
    return found


def error(response: httpx2.Response, status: int) -> str:
    found = answered(response, status)["error"]
    assert set(found) == {"code", "message", "remedy"}
    return str(found["code"])


async def test_every_question_wants_the_token_of_this_start(served: Dashboard) -> None:
    async with httpx2.AsyncClient(base_url=served.base, timeout=WAIT_S, trust_env=False) as stranger:
        for method, where, _ in ROUTES:
            if not where.startswith("/api/"):
                continue
            for headers in ({}, {"authorization": "Bearer " + "x" * len(served.token)}):
                response = await stranger.request(method, re.sub("{.*?}", "b", where), headers=headers)
                assert error(response, 401) == "TokenRefused"
                assert served.token not in response.text
        assert (await stranger.get("/")).status_code == 200


async def test_a_foreign_name_and_a_foreign_page_are_refused(served: Dashboard) -> None:
    async with served.client() as client:
        assert error(await client.get("/api/boards", headers={"host": "example.org"}), 403) == "PeerRefused"
        assert error(await client.get("/", headers={"host": "127.0.0.1.example.org"}), 403) == "PeerRefused"
        origin = {"origin": "http://example.org"}
        assert error(await client.get("/api/boards", headers=origin), 403) == "PeerRefused"
        assert error(await client.post("/api/boards/b/tasks", headers=origin), 403) == "PeerRefused"
        assert (await client.get("/api/boards", headers={"origin": served.base})).status_code == 200


async def test_every_answer_says_what_a_browser_may_do_with_it(
    served: Dashboard, client: httpx2.AsyncClient
) -> None:
    for where in ("/", "/static/app.js", "/api/boards", "/api/nothing", "/nothing"):
        headers = (await client.get(where)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    refused = await client.get("/api/boards", headers={"host": "example.org"})
    assert "default-src 'none'" in refused.headers["content-security-policy"]


async def test_the_page_consists_of_files_of_ours_and_loads_nothing_else(client: httpx2.AsyncClient) -> None:
    names = {path.name for path in STATIC.iterdir()}
    page = (await client.get("/")).text
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) <= {f"/static/{name}" for name in names}
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    for name in names:
        response = await client.get(f"/static/{name}")
        assert response.status_code == 200
        assert not re.search(r"https?://(?!www\.w3\.org/)", response.text)
        assert len(response.text.splitlines()) < 400
    for where in ("/static/..%2fapp.py", "/static/../app.py", "/static/%2e%2e/app.py"):
        assert (await client.get(where)).status_code == 404


@pytest.mark.parametrize("host", ["192.0.2.1", "::"])
async def test_a_listener_beyond_loopback_is_refused(
    board: Store, path: str, tmp_path: Path, host: str
) -> None:
    with pytest.raises(StartupError):
        async with dashboard(path, tmp_path, host=host):
            pass


async def test_a_taken_port_an_unknown_board_and_a_missing_store_are_said(
    served: Dashboard, path: str, tmp_path: Path
) -> None:
    taken = int(served.base.rsplit(":", 1)[1])
    with pytest.raises(StartupError):
        async with dashboard(path, tmp_path, port=taken):
            pass
    with pytest.raises(NotFound):
        async with dashboard(path, tmp_path, boards=("x",)):
            pass
    with pytest.raises(NotFound):
        async with dashboard(str(tmp_path / "none.db"), tmp_path):
            pass


async def test_boards_are_listed_and_counted(client: httpx2.AsyncClient, board: Store) -> None:
    task = made(board)
    board.comment(task.id, "hello")
    found = await answer(client, "/api/boards")
    assert [one["slug"] for one in found["boards"]] == ["b"]
    assert found["who"] == WHO
    found = await answer(client, "/api/boards/b")
    assert (found["counts"]["ready"], found["counts"]["done"], found["board"]["last_seq"]) == (1, 0, 3)
    assert error(await client.get("/api/boards/x"), 404) == "NotFound"


async def test_hosts_are_told_with_their_environments_and_a_card_names_where_it_runs(
    client: httpx2.AsyncClient, board: Store
) -> None:
    task = made(board, environment="box")
    places = Places({"box": "", "gone": "unreachable since noon"})
    board.claim("b", worker="w", host="h", assignees=["coder"], places=places)
    found = await answer(client, "/api/boards/b")
    assert [(one["host"], one["environment"], one["shut"], one["running"]) for one in found["places"]] == [
        ("h", "", "", 0),
        ("h", "box", "", 1),
        ("h", "gone", "unreachable since noon", 0),
    ]
    [card] = (await answer(client, f"/api/boards/b/cards?id={task.id}"))["cards"]
    assert card["place"] == "box"


async def test_only_the_boards_that_were_named_are_shown(board: Store, path: str, tmp_path: Path) -> None:
    board.create_board("other")
    hidden = board.create("other", NewTask(title="hidden"))
    async with dashboard(path, tmp_path, boards=("b",)) as here, here.client() as client:
        assert [one["slug"] for one in (await answer(client, "/api/boards"))["boards"]] == ["b"]
        for where in ("boards/other", "boards/other/tasks", "boards/other/events", f"tasks/{hidden.id}"):
            assert error(await client.get(f"/api/{where}"), 404) == "NotFound"
        assert error(await client.post(f"/api/tasks/{hidden.id}/cancel"), 404) == "NotFound"
        assert (await answer(client, f"/api/boards/b/cards?id={hidden.id}"))["cards"] == []
    assert board.task(hidden.id).status == "ready"


async def test_a_column_is_read_page_by_page_each_task_once(client: httpx2.AsyncClient, board: Store) -> None:
    ids = {made(board, f"task {number} " + "x" * 300).id for number in range(45)}
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        found = await answer(client, f"/api/boards/b/tasks?status=ready&limit=20&cursor={cursor}")
        seen += [card["id"] for card in found["cards"]]
        cursor = found["cursor"]
    assert len(seen) == len(ids)
    assert set(seen) == ids


async def test_a_card_has_its_reason_and_never_the_body(client: httpx2.AsyncClient, board: Store) -> None:
    first = made(board, body="b" * 100_000)
    made(board, "second", first.id)
    [card] = (await answer(client, "/api/boards/b/tasks?status=todo"))["cards"]
    assert card["line"] == f"waits for {first.id} (ready)"
    response = await client.get("/api/boards/b/tasks?status=ready")
    assert len(response.content) < 1000


async def test_columns_and_cards_are_filtered_alike(client: httpx2.AsyncClient, board: Store) -> None:
    one, two = made(board, "Fix the Mast"), made(board, "paint", assignee="painter", body="the mast, in red")
    made(board, "sweep")
    ids = f"id={one.id}&id={two.id}&id=t_nothing"
    for query, expected in {
        "search=mast": {one.id, two.id},
        "search=mast&assignee=painter": {two.id},
        "search=100%25": set(),
    }.items():
        page = await answer(client, f"/api/boards/b/tasks?{query}")
        some = await answer(client, f"/api/boards/b/cards?{ids}&{query}")
        assert {card["id"] for card in page["cards"]} == {card["id"] for card in some["cards"]} == expected
    assert error(await client.get("/api/boards/b/tasks?status=nowhere"), 400) == "UsageError"
    assert error(await client.get("/api/boards/b/tasks?cursor=x"), 400) == "UsageError"
    assert error(await client.get("/api/boards/b/cards?" + "id=x&" * 101), 400) == "UsageError"


async def test_what_waits_on_me_is_not_what_waits_on_others(client: httpx2.AsyncClient, board: Store) -> None:
    mine, others = made(board), made(board)
    for task, name in ((mine, WHO), (others, "ben")):
        asked = {"question": "red?", "waiting_for": name, "options": ["yes", "no"]}
        moved = answered(await client.post(f"/api/tasks/{task.id}/block", json=asked))["task"]
        assert (moved["status"], moved["options"]) == ("waiting_human", ["yes", "no"])
    found = await answer(client, "/api/boards/b/tasks?mine=true&status=waiting_human")
    assert [(card["id"], card["line"]) for card in found["cards"]] == [(mine.id, "red?")]


async def test_a_task_is_made_once_for_its_key(client: httpx2.AsyncClient, board: Store) -> None:
    asked = {"title": "new", "assignee": "script", "key": "k", "in_s": 3600}
    first = answered(await client.post("/api/boards/b/tasks", json=asked), 201)["task"]
    again = answered(await client.post("/api/boards/b/tasks", json=asked), 201)["task"]
    assert first["id"] == again["id"]
    assert board.task(first["id"]).created_by == WHO
    asked["title"] = "other"
    assert error(await client.post("/api/boards/b/tasks", json=asked), 409) == "Conflict"


async def test_a_person_asks_for_all_that_a_task_can_have_and_changes_it(
    client: httpx2.AsyncClient, board: Store
) -> None:
    wishes = {"reviewer": "ann", "checks": ["make"], "pool": "gpu", "max_tokens": 5, "max_cost": 7}
    new = answered(await client.post("/api/boards/b/tasks", json={"title": "t", **wishes}), 201)["task"]
    assert {name: new[name] for name in wishes} == wishes
    change: dict[str, object] = {"pool": "", "checks": [], "max_cost": None}
    changed = answered(await client.post(f"/api/tasks/{new['id']}/edit", json=change))["task"]
    assert {name: changed[name] for name in wishes} == wishes | change
    assert error(await client.post(f"/api/tasks/{new['id']}/link", json={}), 404) == "MethodNotFound"


async def test_a_person_moves_a_task_by_the_same_rules_as_with_the_commands(
    client: httpx2.AsyncClient, board: Store
) -> None:
    id = made(board).id
    for verb, words, status in (
        ("rethink", {}, "triage"),
        ("specify", {"reason": "clear now"}, "ready"),
        ("schedule", {"in_s": 3600}, "scheduled"),
        ("unblock", {}, "ready"),
        ("cancel", {"reason": "no use"}, "cancelled"),
        ("archive", {}, "archived"),
    ):
        moved = answered(await client.post(f"/api/tasks/{id}/{verb}", json=words))["task"]
        assert moved["status"] == status
    assert {event.actor for event in board.show(id).events[1:]} == {WHO}
    refused = await client.post(f"/api/tasks/{id}/complete", json={})
    assert error(refused, 409) == "IllegalTransition"


async def test_work_whose_report_is_missing_is_accepted_or_reported_again(
    client: httpx2.AsyncClient, board: Store
) -> None:
    for verb, words, expected in (
        ("retry", {"report_only": True}, ("ready", True)),
        ("retry", {}, ("ready", False)),
        ("complete", {"result": "it is there"}, ("done", False)),
    ):
        task, run = claimed(board, made(board).id)
        board.fail(run.ref, FailureKind.HANDOFF, error="no report")
        moved = answered(await client.post(f"/api/tasks/{task.id}/{verb}", json=words))["task"]
        assert (moved["status"], moved["report_only"]) == expected


async def test_comments_messages_and_assignments_are_a_persons(
    client: httpx2.AsyncClient, board: Store
) -> None:
    id = made(board).id
    said = answered(await client.post(f"/api/tasks/{id}/comment", json={"body": "<b>hi</b>"}))["comment"]
    assert (said["author"], said["body"]) == (WHO, "<b>hi</b>")
    assert (
        answered(await client.post(f"/api/tasks/{id}/assign", json={"assignee": "x"}))["task"]["assignee"]
        == "x"
    )
    unheard = await client.post(f"/api/tasks/{id}/tell", json={"body": "faster"})
    assert error(unheard, 400) == "InvalidRequest"
    claimed(board, id)
    told = answered(await client.post(f"/api/tasks/{id}/tell", json={"body": "faster"}))["message"]
    assert (told["author"], told["body"], told["seen_ms"]) == (WHO, "faster", None)
    refused = await client.post(f"/api/tasks/{id}/assign", json={"assignee": "y"})
    assert error(refused, 400) == "InvalidRequest"


@pytest.mark.parametrize("body", ["{", "[]", '{"reason": 1}', '{"unknown": "x"}', " " * app.MAX_BODY + "{}"])
async def test_a_body_that_is_wrong_changes_nothing(
    client: httpx2.AsyncClient, board: Store, body: str
) -> None:
    id = made(board).id
    assert error(await client.post(f"/api/tasks/{id}/cancel", content=body), 400) == "UsageError"
    assert board.task(id).status == "ready"


async def test_what_there_is_not_is_not_found(client: httpx2.AsyncClient, board: Store) -> None:
    id = made(board).id
    for method, where, code in (
        ("GET", "tasks/t_nothing", "NotFound"),
        ("GET", f"tasks/{id}/output", "NotFound"),
        ("GET", f"tasks/{id}/diff", "NotFound"),
        ("GET", f"tasks/{id}/file?name=x", "NotFound"),
        ("POST", f"tasks/{id}/explode", "MethodNotFound"),
        ("POST", f"tasks/{id}/claim", "MethodNotFound"),
        ("GET", "nothing", "MethodNotFound"),
    ):
        assert error(await client.request(method, f"/api/{where}"), 404) == code
    assert error(await client.delete(f"/api/tasks/{id}"), 405) == "MethodNotFound"


async def test_a_task_is_shown_with_its_neighbours_and_what_may_be_done(
    client: httpx2.AsyncClient, board: Store
) -> None:
    first = made(board, "first")
    second = made(board, "second", first.id)
    board.attach(second.id, "plan.md", b"# plan")
    found = await answer(client, f"/api/tasks/{second.id}")
    assert found["task"]["title"] == "second"
    assert found["names"] == {first.id: {"title": "first", "status": "ready"}}
    assert found["moves"] == ["block", "cancel", "complete", "rethink", "schedule"]
    assert found["why"] == f"waits for {first.id} (ready)"
    assert [file["name"] for file in found["files"]] == ["plan.md"]


async def test_what_a_run_said_and_changed_is_shown_and_can_be_saved(
    client: httpx2.AsyncClient, board: Store
) -> None:
    task, run = claimed(board, made(board).id)
    assert error(await client.get(f"/api/tasks/{task.id}/output"), 404) == "NotFound"
    board.keep(run.id, "output", b"begin" + b"x" * 300_000 + b"\xff\xff\xff")
    board.keep(run.id, "diff.patch", b"+new\n")
    board.complete(run.ref, "e", "done")
    said = await answer(client, f"/api/tasks/{task.id}/output?run={run.id}")
    assert (said["live"], said["size"], said["run"]) == (False, 300_008, run.id)
    assert len(said["content"]) < 300_000
    again = await answer(client, f"/api/tasks/{task.id}/output?mark={said['mark']}")
    assert "content" not in again
    assert (await answer(client, f"/api/tasks/{task.id}/diff"))["content"] == "+new\n"
    saved = await client.get(f"/api/tasks/{task.id}/file?run={run.id}&name=output")
    assert saved.content.startswith(b"begin")
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"].startswith("attachment;")


async def test_the_name_of_an_attachment_stays_a_name(client: httpx2.AsyncClient, board: Store) -> None:
    id = made(board).id
    name = 'a"; filename=evil.html; x="'
    board.attach(id, name, b"<script>")
    saved = await client.get(f"/api/tasks/{id}/file", params={"name": name})
    assert saved.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''a%22%3B%20filename%3Devil.html%3B%20x%3D%22"
    )


async def test_a_stream_tells_what_others_change_and_is_taken_up_where_it_broke_off(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BEAT_S", 3600.0)  # nothing is found by looking again
    with open_store(address) as store:
        store.create_board("b")
        async with dashboard(address, tmp_path) as here, here.client() as client, asyncio.timeout(WAIT_S):
            async with listening(client, "b") as messages:
                assert (await anext(messages)) == ("hello", {"schemaVersion": 1, "seq": 1, "reset": False})
                first = made(store)
                kind, changes = await anext(messages)
                assert (kind, [event["task_id"] for event in changes["events"]]) == ("changes", [first.id])
                seen = changes["seq"]
            missed = [made(store).id for _ in range(3)]
            async with listening(client, "b", seen) as messages:
                assert (await anext(messages))[1]["seq"] == seen
                heard: list[dict[str, Any]] = []
                while len(heard) < len(missed):
                    heard += (await anext(messages))[1]["events"]
                missed.append(made(store).id)
                heard += (await anext(messages))[1]["events"]
            assert [event["task_id"] for event in heard] == missed
            assert [event["seq"] for event in heard] == [seen + number for number in (1, 2, 3, 4)]
            assert all("payload" not in event for event in heard)


async def test_whoever_missed_too_much_or_knows_of_more_than_there_is_looks_at_everything(
    client: httpx2.AsyncClient, board: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_BEHIND", 2)
    for _ in range(3):
        made(board)
    for after, reset in ((1, True), (2, False), (4, False), (5, True)):
        async with listening(client, "b", after) as messages, asyncio.timeout(WAIT_S):
            _, hello = await anext(messages)
            assert (hello["reset"], hello["seq"]) == (reset, 4 if reset else after)
    assert error(await client.get("/api/boards/b/events?after=-1"), 400) == "UsageError"


async def room(client: httpx2.AsyncClient) -> None:
    """Until another stream may be opened."""
    async with asyncio.timeout(WAIT_S):
        while True:
            async with client.stream("GET", "/api/boards/b/events") as response:
                if response.status_code == 200:
                    return


async def test_there_are_so_many_streams_and_one_that_is_left_makes_room(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_STREAMS", 1)
    async with listening(client, "b") as messages:
        await anext(messages)
        assert error(await client.get("/api/boards/b/events"), 409) == "Conflict"
    await room(client)


async def test_a_page_that_does_not_read_is_cut_off_and_goes_on_later(
    board: Store, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_STREAMS", 1)
    monkeypatch.setattr(feed, "MAX_BEHIND", 2 * MANY)
    board.database.write(note_many)
    async with dashboard(path, tmp_path, slow_s=0.3) as here, here.client() as client:
        with socket.socket() as peer:
            await ask_without_reading(peer, here, "/api/boards/b/events?after=0")
            await room(client)
            taken = await rest(peer)
        seen = 0
        for line in taken.rpartition(b"\n\n")[0].splitlines():
            if line.startswith(b"data: "):
                seen = json.loads(line[6:])["seq"]
        assert 0 < seen < MANY
        async with listening(client, "b", seen) as messages, asyncio.timeout(WAIT_S):
            await anext(messages)
            assert (await anext(messages))[1]["events"][0]["seq"] == seen + 1


def note_many(tx: Transaction) -> None:
    for _ in range(MANY):
        tx.log("b", "noted", "me", task=None)


async def ask_without_reading(peer: socket.socket, here: Dashboard, where: str) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    host, port = here.base.removeprefix("http://").split(":")
    head = f"GET {where} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {here.token}\r\n\r\n"
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, (host, int(port)))
    await loop.sock_sendall(peer, head.encode())
    assert await loop.sock_recv(peer, 12) == b"HTTP/1.1 200"


async def rest(peer: socket.socket) -> bytes:
    taken = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(WAIT_S):
            while chunk := await asyncio.get_running_loop().sock_recv(peer, 65536):
                taken += chunk
    return taken
