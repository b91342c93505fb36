"""The board in a real browser: fifty thousand tasks, changes of others, text as text, the keyboard."""

import contextlib
import http.server
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from holdfast.board.rules.assign import Places
from holdfast.board.rules.budget import BudgetUse
from holdfast.board.rules.rows import NewTask
from holdfast.board.rules.transitions import Move
from holdfast.board.store import Store, open_store
from holdfast.web import cookies
from tests.support.board_command import Board
from tests.support.boards import claimed, made
from tests.support.patience import patient
from tests.support.web import Dashboard, started

MANY: Final = 50_000
MAX_CARDS: Final = 150  # in the page, whatever the board holds
PAGE: Final = 50  # cards of one request
SCROLLED: Final = """([where, far]) => {
    const list = document.querySelector(`${where} .scroll`);
    list.scrollTop = list.scrollHeight;
    const cards = [...list.querySelectorAll(".card")];
    return cards.some((card) => Number(card.getAttribute("aria-posinset")) > far);
}"""
ASKED_FROM_ELSEWHERE: Final = """async ([read, write]) => {
    const ours = { "X-Holdfast": "page" };
    const body = JSON.stringify({ title: "made from elsewhere" });
    const tried = [
        fetch(read, { credentials: "include", headers: ours }),
        fetch(write, { method: "POST", credentials: "include", headers: ours, body }),
        fetch(write, { method: "POST", credentials: "include", mode: "no-cors", body }),
    ];
    return (await Promise.allSettled(tried)).map((one) => one.reason?.name ?? one.value.type);
}"""
WAIT_MS: Final = patient(20_000)
HOSTILE: Final = "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed: install the package chromium")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, served: Dashboard) -> Iterator[Page]:
    """Closed before the server is; what goes wrong in it fails the test."""
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    known = ("the server responded with a status of", "net::ERR_CONNECTION_REFUSED")  # what tests ask for
    assert [text for text in trouble if not any(words in text for words in known)] == []


@pytest.fixture
def board(sqlite_board: Board) -> Iterator[Store]:
    with open_store(sqlite_board.address) as store:
        store.create_board("b")
        yield store


@pytest.fixture
def served(board: Store, sqlite_board: Board) -> Iterator[Dashboard]:
    with started(sqlite_board.address, sqlite_board.home) as here:
        yield here


def opened(page: Page, here: Dashboard) -> None:
    page.goto(here.url)
    expect(page.locator("#link")).to_have_attribute("data-state", "live")


def column(status: str) -> str:
    return f".column[data-status={status}]"


def fill(address: str, like: str) -> None:
    """Tasks without end that are like this one, older than it."""
    with sqlite3.connect(address) as db:
        names = [str(row[1]) for row in db.execute("PRAGMA table_info(tasks)")]
        new = {
            "id": "printf('t_%012x', i)",
            "title": "'number ' || i",
            "created_ms": "created_ms - i",
            "status_ms": "status_ms - i",
        }
        values = ", ".join(new.get(name, name) for name in names)
        db.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :most) "  # noqa: S608
            f"INSERT INTO tasks ({', '.join(names)}) SELECT {values} FROM tasks, n WHERE id = :like",
            {"most": MANY, "like": like},
        )
    db.close()


def test_fifty_thousand_tasks_leave_the_page_small_and_what_others_change_appears(
    page: Page, board: Store, served: Dashboard, sqlite_board: Board
) -> None:
    fill(sqlite_board.address, made(board, "the newest").id)
    opened(page, served)
    ready = page.locator(column("ready"))
    expect(ready.locator(".number")).to_have_text(f"{MANY + 1:,}")
    page.wait_for_function(SCROLLED, arg=[column("ready"), 6 * PAGE])
    assert ready.locator(".card").count() < MAX_CARDS
    assert page.evaluate("document.querySelectorAll('*').length") < 20 * MAX_CARDS

    page.evaluate("window.still = true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    done = sqlite_board.task("complete", str(ready.locator(".card").last.get_attribute("data-id")))
    expect(page.locator(f"{column('done')} [data-id={done['id']}]")).to_be_visible(timeout=WAIT_MS)
    expect(ready.locator(f"[data-id={done['id']}]")).to_have_count(0)
    expect(ready.locator(".number")).to_have_text(f"{MANY:,}")
    assert page.evaluate("window.still")
    assert any(f"/cards?id={done['id']}" in url for url in asked)
    assert [url for url in asked if "/tasks?" in url and "cursor=" not in url] == []

    ready.locator(".scroll").evaluate("node => node.scrollTop = 0")
    new = sqlite_board.task("create", "from another process", "--board", "b")
    card = ready.locator(f"[data-id={new['id']}]")
    expect(card).to_contain_text("from another process")
    expect(card).to_have_attribute("aria-posinset", "1")
    page.locator("#search").fill("number 49999")
    expect(ready.locator(".card")).to_have_count(1)


def test_markup_from_a_task_stays_text(page: Page, board: Store, served: Dashboard) -> None:
    parent = made(board, HOSTILE, body=HOSTILE)
    task = made(board, HOSTILE, parent.id, body=HOSTILE, assignee=HOSTILE)
    board.comment(task.id, HOSTILE, who=HOSTILE)
    board.attach(task.id, HOSTILE.replace("/", ""), b"")
    _, run = claimed(board, parent.id)
    board.keep(run.id, "diff.patch", f"+{HOSTILE}\n".encode())
    board.complete(run.ref, "e", HOSTILE)
    board.move(task.id, Move.BLOCK, question=HOSTILE, options=(HOSTILE,))
    opened(page, served)
    for id in (task.id, parent.id):
        page.locator(f".card[data-id={id}]").click()
        expect(page.locator("#drawer h2")).to_have_text(HOSTILE)
        expect(page.locator("#drawer .graph .node")).to_have_count(2)
        page.keyboard.press("Escape")
    page.locator(f".card[data-id={parent.id}]").click()
    expect(page.locator(".diff .plus")).to_contain_text("window.owned")
    assert page.evaluate("window.owned") is None
    assert page.locator("main img, aside img, main script, aside script").count() == 0


def test_a_person_makes_opens_and_comments_a_task_by_keyboard(
    page: Page, board: Store, served: Dashboard
) -> None:
    made(board, "older")
    opened(page, served)
    page.keyboard.press("n")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_have_text("by keyboard")
    page.keyboard.press("c")
    page.keyboard.type("a remark")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#drawer .comment")).to_contain_text("a remark")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(page.locator(".card")).to_have_count(2)  # the new one comes with the news
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    expect(page.locator(".card:focus")).to_contain_text("by keyboard")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_have_text("older")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#dialog")).to_contain_text("new task")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("keyboard")
    expect(page.locator(".card")).to_have_count(1)
    assert {comment.body for task in board.page("b").tasks for comment in board.show(task.id).comments} == {
        "a remark"
    }


def test_a_question_is_answered_and_a_refused_move_says_why(
    page: Page, board: Store, served: Dashboard
) -> None:
    asked = made(board, "ask me")
    board.move(asked.id, Move.BLOCK, question="Which colour?", options=("red", "white"))
    other = made(board, "another")
    opened(page, served)
    page.keyboard.press("m")
    expect(page.locator(".card")).to_have_count(1)
    page.locator(".card").click()
    expect(page.locator("#drawer .question")).to_have_text("Which colour?")
    page.locator("#drawer .answers").get_by_role("button", name="white").click()
    expect(page.locator("#drawer .chip").first).to_have_text("ready")
    expect(page.locator("#drawer .question")).to_have_count(0)
    assert (board.task(asked.id).status, board.task(asked.id).reason) == ("ready", "white")
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    page.locator(f".card[data-id={other.id}]").click()
    page.locator("#drawer [data-move=cancel]").click()
    board.move(other.id, Move.COMPLETE)  # somebody is faster
    page.locator("#dialog button[type=submit]").click()
    expect(page.locator(".toast")).to_contain_text("cannot cancel a task that is done")


def test_runs_dependencies_and_attachments_are_shown(page: Page, board: Store, served: Dashboard) -> None:
    first = made(board, "first")
    second = made(board, "second", first.id)
    _, run = claimed(board, first.id)
    board.keep(run.id, "output", b"\x1b[31mred\x1b[0m words\n")
    board.keep(run.id, "diff.patch", b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n")
    board.complete(run.ref, "e", "it works")
    reached = {"host": "model.test", "port": 443, "connections": 1, "sent": 2048, "received": 10}
    sent = [reached | {"from_ms": 1, "to_ms": 2}]
    for _ in range(2):  # told once
        board.tell_network(run.ref, {"whole": False, "counted": True, "sent": sent, "refused": [], "more": 0})
    board.attach(second.id, "plan.md", b"# plan")
    opened(page, served)
    page.locator(f".card[data-id={second.id}]").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="plan.md").click()
    assert Path(saved.value.path()).read_bytes() == b"# plan"
    page.locator(f".graph [data-id={first.id}]").click()
    expect(page.locator("#drawer h2")).to_have_text("first")
    expect(page.locator(".run")).to_contain_text("completed")
    expect(page.locator(".run .network")).to_contain_text("model.test:443")
    told = [event for event in board.show(first.id).events if event.kind == "run_network"]
    assert [event.payload["sent"] for event in told] == [sent]
    expect(page.locator(".diff .minus")).to_have_text("-old\n")
    page.get_by_role("tab", name="output").click()
    expect(page.locator(".output")).to_have_text("red words\n")


def test_a_run_that_changed_nothing_is_said_to_have(page: Page, board: Store, served: Dashboard) -> None:
    task = made(board)
    _, run = claimed(board, task.id)
    board.keep(run.id, "diff.patch", b"")
    board.complete(run.ref, "e", "it works")
    opened(page, served)
    page.locator(f".card[data-id={task.id}]").click()
    page.get_by_role("tab", name="diff").click()
    expect(page.locator("#drawer")).to_contain_text("nothing was changed")


def test_a_live_run_is_followed_and_what_it_used_is_shown(
    page: Page, board: Store, served: Dashboard
) -> None:
    task, run = claimed(board, made(board, "long").id)
    board.heartbeat(run.ref, note="41 of 120 tests")
    board.use(run.ref, BudgetUse(tokens=12_000, cost=530_000, turns=7))
    said = ["first words\n", "first words\nmore words\n"]
    state: dict[str, object] = {"live": True, "run": run.id}

    def output(route: Route) -> None:
        content = said[0] if len(said) == 1 else said.pop(0)
        route.fulfill(json=state | {"content": content, "mark": content, "size": len(content)})

    page.route(f"**/api/tasks/{task.id}/output*", output)
    opened(page, served)
    expect(page.locator(f"{column('running')} .card")).to_contain_text("41 of 120 tests")
    page.locator(".card").click()
    expect(page.locator(".live")).to_be_visible()
    expect(page.locator(".output")).to_have_text(said[-1])
    expect(page.locator(".run")).to_contain_text("12,000 tokens · $0.53 · 7 turns")
    state["live"] = False
    expect(page.locator(".live")).to_have_count(0)


def test_hosts_and_what_runs_there_are_shown(page: Page, board: Store, served: Dashboard) -> None:
    made(board, "far", environment="box")
    places = Places({"box": "", "gone": "unreachable since noon"})
    board.claim("b", worker="w", host="laptop", assignees=["coder"], places=places)
    opened(page, served)
    expect(page.locator(f"{column('running')} .card")).to_contain_text("@box")
    expect(page.locator("#places")).to_have_text("3 hosts · 1 not taking work")
    page.locator("#places").click()
    expect(page.locator("#dialog")).to_contain_text("box by laptop1 running · takes work")
    expect(page.locator("#dialog")).to_contain_text("gone by laptop0 running · unreachable since noon")


def test_a_worker_is_told_something_and_a_run_that_looks_stuck_says_so(
    page: Page, board: Store, served: Dashboard
) -> None:
    task, run = claimed(board, made(board, "long").id)
    opened(page, served)
    page.locator(".card").click()
    page.get_by_role("button", name="Tell the worker").click()
    page.get_by_role("textbox", name="The worker gets it").fill("look here first")
    page.get_by_role("button", name="Tell", exact=True).click()
    expect(page.locator("#drawer .comment")).to_contain_text("on its way")
    assert [message.body for message in board.show(task.id).messages] == ["look here first"]
    board.set_stuck(run.ref, "the same call 12 times")
    expect(page.locator(f"{column('running')} .card")).to_contain_text("looks stuck: the same call")


def test_a_host_that_a_worker_waits_for_is_allowed_on_the_page(
    page: Page, board: Store, served: Dashboard
) -> None:
    task, run = claimed(board, made(board, "fetch").id)
    asked = {"program": "<b>curl</b>", "pattern": "*.example.net:443"}
    board.ask_host(run.ref, request="n1", host="registry.example.net:443", **asked)
    claimed(board, made(board, "another that runs").id)
    opened(page, served)
    words = "<b>curl</b> wants to reach registry.example.net:443"
    expect(page.locator("#waiting")).to_have_text("1")
    page.keyboard.press("m")
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator(f"{column('running')} .card")).to_contain_text(words)
    page.locator(".card").click()
    expect(page.locator("#drawer .question")).to_have_text(words)
    page.locator("#drawer .answers").get_by_role("button", name="Allow *.example.net:443").click()
    expect(page.locator("#drawer .question")).to_have_count(0)
    expect(page.locator("#waiting")).to_have_text("")
    [question] = board.show(task.id).questions
    assert (question.answer, question.outcome) == ("pattern", "")


def test_a_new_task_has_all_that_its_form_asks_for(page: Page, board: Store, served: Dashboard) -> None:
    opened(page, served)
    page.locator("#new").click()
    page.get_by_role("textbox", name="Title").fill("bounded")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("textbox", name="Who is asked to review it").fill("ann")
    page.get_by_role("textbox", name="Commands that must succeed").fill("make\nmake test\n")
    page.get_by_role("textbox", name="Pool").fill("gpu")
    page.get_by_role("spinbutton", name="Minutes of one run").fill("1.5")
    page.get_by_role("spinbutton", name="Tokens").fill("1000")
    page.get_by_role("spinbutton", name="Dollars").fill("2.5")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator("#drawer")).to_contain_text("$2.50")
    [task] = board.page("b").tasks
    assert (task.title, task.reviewer, task.checks, task.pool) == (
        "bounded",
        "ann",
        ["make", "make test"],
        "gpu",
    )
    assert (task.max_runtime_s, task.max_tokens, task.max_cost) == (90, 1000, 2_500_000)
    assert (task.status, task.max_attempts) == ("ready", 3)


def test_escape_empties_the_search_and_its_filter(page: Page, board: Store, served: Dashboard) -> None:
    for title in ("sail", "anchor"):
        made(board, title)
    opened(page, served)
    expect(page.locator(".card")).to_have_count(2)
    for field, text in (("#search", "sail"), ("#assignee", "nobody")):
        page.locator(field).fill(text)
        expect(page.locator(".card")).to_have_count(1 if field == "#search" else 0)
        page.locator(field).press("Escape")
        expect(page.locator(".card")).to_have_count(2)
        expect(page.locator(field)).to_have_value("")


def test_colours_of_a_terminal_are_not_shown_as_letters(page: Page, board: Store, served: Dashboard) -> None:
    task = made(board, "a \x1b[31mred\x1b[0m sail", body="\x1b]0;owned\x07plain \x1b[1mbold\x1b[m text")
    opened(page, served)
    expect(page.locator(".card h3")).to_have_text("a red sail")
    page.locator(f".card[data-id={task.id}]").click()
    expect(page.locator("#drawer")).to_contain_text("plain bold text")
    assert "[31m" not in page.content()
    assert "\x1b" not in page.content()


def test_an_empty_board_says_what_to_do_and_empty_columns_leave_the_room_to_the_others(
    page: Page, board: Store, served: Dashboard
) -> None:
    opened(page, served)
    hint = "getComputedStyle(document.querySelector('.columns'), '::after').content"
    assert "No tasks yet" in page.evaluate(hint)
    made(board)
    expect(page.locator(f"{column('ready')} .card")).to_have_count(1)
    expect(page.locator(".columns[data-empty]")).to_have_count(0)
    expect(page.locator(f"{column('ready')}.empty")).to_have_count(0)
    assert page.evaluate(hint) == "none"
    ready, running = (page.locator(column(status)).bounding_box() for status in ("ready", "running"))
    assert ready is not None
    assert running is not None
    assert ready["width"] >= 236 > 2 * running["width"] / 1.5


def test_when_nobody_answers_the_page_says_so_in_words(page: Page, board: Store, served: Dashboard) -> None:
    made(board, "sail")
    opened(page, served)
    page.route("**/api/**", lambda route: route.abort("connectionrefused"))
    page.locator("#search").fill("x")
    expect(page.locator(".toast").first).to_contain_text("Holdfast does not answer any more")
    expect(page.locator(".toast").first).to_contain_text("holdfast up")
    assert "Failed to fetch" not in page.content()


def test_the_board_that_is_meant_is_the_one_that_opens(page: Page, board: Store, sqlite_board: Board) -> None:
    board.create_board("a-first")
    board.create_board("crew")
    with started(sqlite_board.address, sqlite_board.home, "--board", "crew", "--board", "a-first") as here:
        opened(page, here)
        expect(page.locator("#boards")).to_have_value("crew")


def test_what_was_missed_while_the_stream_was_down_is_made_up_for(
    page: Page, board: Store, served: Dashboard
) -> None:
    made(board, "before")
    page.route("**/events*", lambda route: route.fulfill(status=503, body=""))
    page.goto(served.url)
    expect(page.locator("#link")).to_have_text("reconnecting")
    expect(page.locator(".card")).to_have_count(1)
    made(board, "meanwhile")
    page.unroute("**/events*")
    expect(page.locator(".card")).to_have_count(2)
    expect(page.locator("#link")).to_have_text("live")


def test_a_page_without_the_token_shows_nothing_of_the_board(
    page: Page, board: Store, served: Dashboard
) -> None:
    made(board, "secret")
    page.goto(f"{served.base}/#token=wrong")
    expect(page.locator(".locked")).to_contain_text("no valid token")
    assert "secret" not in page.content()
    opened(page, served)
    expect(page.locator(".card")).to_contain_text("secret")
    assert served.token not in page.url


def test_a_browser_that_was_let_in_once_needs_no_token_and_helps_no_other_page(
    browser: Browser, board: Store, sqlite_board: Board
) -> None:
    made(board, "kept")
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    with started(sqlite_board.address, sqlite_board.home) as here, blank_page() as elsewhere:
        page = context.new_page()
        page.goto(f"{here.base}/")
        expect(page.locator(".locked")).to_contain_text("holdfast open")
        page.goto(cookies.link(sqlite_board.home, f"{here.base}/"))
        expect(page.locator(".card")).to_contain_text("kept")
        assert page.url == f"{here.base}/"
        assert page.evaluate("document.cookie") == ""
        other = context.new_page()
        other.goto(elsewhere)
        tried = [f"{here.base}/api/boards", f"{here.base}/api/boards/b/tasks"]
        assert other.evaluate(ASKED_FROM_ELSEWHERE, tried) == ["TypeError"] * 3
    with started(sqlite_board.address, sqlite_board.home) as here:
        page = context.new_page()
        page.goto(f"{here.base}/")
        expect(page.locator(".card")).to_contain_text("kept")
    context.close()
    assert len(board.page("b").tasks) == 1


@contextlib.contextmanager
def blank_page() -> Iterator[str]:
    """Of another program on this machine: the same site to a browser, and another origin."""

    class Blank(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            serving.join()


def test_a_narrow_screen_shows_one_column_and_a_drawer_over_all_of_it(
    page: Page, board: Store, served: Dashboard
) -> None:
    board.create("b", NewTask(title="on the phone", assignee="script"))
    page.set_viewport_size({"width": 390, "height": 780})
    opened(page, served)
    page.locator(".card").click()
    box = page.locator("#drawer").bounding_box()
    assert box is not None
    assert (box["x"], box["width"]) == (0, 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
