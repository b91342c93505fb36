"""The dashboard's requests and their answers. Every question to the store runs in the store's own thread."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules import verbs
from holdfast.board.rules.rows import JsonObject
from holdfast.board.rules.verbs import BoardCaller, Verb
from holdfast.board.store import Store
from holdfast.errors import MethodNotFound, NotFound, UsageError, face
from holdfast.web import cards, entrance, queries, replies
from holdfast.web.cookies import Door
from holdfast.web.feed import EventStream, Feed

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[["Dashboard", Request], Awaitable[ASGIApp]]

MAX_BODY: Final = 2 << 20  # bytes: the longest text of a task, with every character escaped
STATIC: Final = Path(__file__).parent / "static"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The state shared by all requests."""

    store: AsyncStore
    feed: Feed
    home: Path
    who: str
    cut: Callable[[Scope], None]  # ends the connection of a request at once
    only: tuple[str, ...] = ()  # the boards that are shown; all of them when empty
    profiles: tuple[str, ...] = ()  # the profiles that can be started here, to choose from
    first: str | None = None  # the board that a page opens by default
    files: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)
    door: Door | None = None  # without one, only the token gives access

    def board(self, request: Request) -> str:
        """The board that the request names. Raises NotFound for a board that is not shown here."""
        name = str(request.path_params["board"])
        if self.only and name not in self.only:
            raise NotFound(f"there is no board {name[:80]} here", remedy="holdfast board list")
        return name

    async def task(self, request: Request) -> str:
        """The id of the task that the request names. Raises NotFound if its board is not shown here."""
        id = str(request.path_params["id"])
        if self.only and (await self.store.ask(Store.task, id)).board not in self.only:
            raise NotFound(f"there is no task {id[:80]} here", remedy="holdfast task list")
        return id

    async def carry_out(self, verb: Verb, on: str, request: Request, status: int = 200) -> Response:
        """Carry out a verb. Raises UsageError when the request's body is not the verb's form."""
        given = verbs.parse(verb, await _body(request) or b"{}")
        return await self.answer(
            lambda store: {verb.answers: store.carry_out(verb, on, given, who=self.who)}, status
        )

    async def answer(self, look: Callable[[Store], JsonObject], status: int = 200) -> Response:
        return _json(replies.body(**await self.store.ask(look)), status)


async def _boards(here: Dashboard, _request: Request) -> ASGIApp:
    def look(store: Store) -> JsonObject:
        found = [one for one in store.boards() if not here.only or one.slug in here.only]
        return {"boards": found, "who": here.who, "profiles": here.profiles, "first": here.first}

    return await here.answer(look)


async def _board(here: Dashboard, request: Request) -> ASGIApp:
    name = here.board(request)
    return await here.answer(lambda store: queries.board_status(store, name))


async def _column(here: Dashboard, request: Request) -> ASGIApp:
    name, asked = here.board(request), cards.parse_filter(request.query_params)
    return await here.answer(lambda store: queries.page(store, name, asked, here.who))


async def _cards(here: Dashboard, request: Request) -> ASGIApp:
    name, asked = here.board(request), cards.parse_filter(request.query_params)
    ids = request.query_params.getlist("id")
    if len(ids) > cards.MAX_CARDS:
        raise UsageError(f"at most {cards.MAX_CARDS} cards at once")
    return await here.answer(lambda store: queries.list_some(store, name, ids, asked, here.who))


async def _events(here: Dashboard, request: Request) -> ASGIApp:
    name, text = here.board(request), request.query_params.get("after", "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UsageError("`after` is the number of an event")
    last = (await here.store.ask(queries.board, name)).last_seq
    return EventStream(here.feed, name, int(text) if text else None, last, here.cut)


async def _create(here: Dashboard, request: Request) -> ASGIApp:
    return await here.carry_out(
        verbs.find_verb("create", BoardCaller.PERSON), here.board(request), request, 201
    )


async def _detail(here: Dashboard, request: Request) -> ASGIApp:
    id = await here.task(request)
    return await here.answer(lambda store: queries.detail(store, id))


async def _output(here: Dashboard, request: Request) -> ASGIApp:
    query = request.query_params
    said = await queries.run_output(
        here.store, here.home, await here.task(request), query.get("run"), query.get("mark", "")
    )
    return _json(replies.body(**said))


async def _diff(here: Dashboard, request: Request) -> ASGIApp:
    found = await queries.run_diff(here.store, await here.task(request), request.query_params.get("run"))
    return _json(replies.body(**found))


async def _file(here: Dashboard, request: Request) -> ASGIApp:
    id, query = await here.task(request), request.query_params
    name, run = query.get("name", ""), query.get("run")
    data = await here.store.ask(Store.file, id, run, name)
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _verb(here: Dashboard, request: Request) -> ASGIApp:
    verb = verbs.find_verb(str(request.path_params["verb"]), BoardCaller.PERSON)
    if verb.target != "task":
        raise MethodNotFound(f"{verb.name} is not done to one task")
    return await here.carry_out(verb, await here.task(request), request)


async def _page(here: Dashboard, request: Request) -> ASGIApp:
    name = str(request.path_params.get("name", "index.html"))
    if name not in here.files:
        raise NotFound("there is no such page")
    data, kind = here.files[name]
    return Response(data, headers={"content-type": kind})


async def _open(here: Dashboard, request: Request) -> ASGIApp:
    """Exchange the code of a one-time link for a cookie of this home."""
    cookie = (
        None if here.door is None else here.door.enter(request.scope, request.query_params.get("code", ""))
    )
    if cookie is None:
        return Response("This link was used before, or is too old. Type: holdfast open\n", 401)
    return Response(status_code=303, headers={"location": "/", "set-cookie": cookie})


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/", _page),
    ("GET", "/open", _open),
    ("GET", "/static/{name}", _page),
    ("GET", "/api/boards", _boards),
    ("GET", "/api/boards/{board}", _board),
    ("GET", "/api/boards/{board}/tasks", _column),
    ("POST", "/api/boards/{board}/tasks", _create),
    ("GET", "/api/boards/{board}/cards", _cards),
    ("GET", "/api/boards/{board}/events", _events),
    ("GET", "/api/tasks/{id}", _detail),
    ("GET", "/api/tasks/{id}/output", _output),
    ("GET", "/api/tasks/{id}/diff", _diff),
    ("GET", "/api/tasks/{id}/file", _file),
    ("POST", "/api/tasks/{id}/{verb}", _verb),
)


def application(here: Dashboard, token: str) -> ASGIApp:
    """The whole application behind the entrance checks."""
    routes = [Route(path, _handle(here, handler), methods=[method]) for method, path, handler in ROUTES]
    return _Gate(Starlette(routes=routes, exception_handlers={HTTPException: _no_route}), token, here.door)


def pages() -> dict[str, tuple[bytes, str]]:
    """The files of the page, read once: no request reads the disk."""
    found = (path for path in STATIC.iterdir() if path.suffix in TYPES)
    return {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in found}


class _Gate:
    """Answers requests that may not enter, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, token: str, door: Door | None) -> None:
        self._app, self._token, self._door = app, token, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = list(message.get("headers", ()))
                message["headers"] = kept + [(n.encode(), v.encode()) for n, v in entrance.HEADERS]
            await send(message)

        heads = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        has_cookie = self._door is not None and self._door.knows(scope, heads)
        refused = entrance.refusal(scope["path"], heads, self._token, has_cookie=has_cookie)
        app = self._app if refused is None else _json(replies.fault(refused.error), refused.status)
        await app(scope, receive, with_headers)


def _handle(here: Dashboard, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def called(request: Request) -> Response:
        try:
            return await handler(here, request)  # type: ignore[return-value]  # Starlette calls whatever it is
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        except Exception as exc:
            status = face(exc).http
            if status == 500:
                log.exception("a request of the dashboard failed")
            return _json(replies.fault(exc), status)

    return called


async def _no_route(_request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    return _json(replies.fault(MethodNotFound("there is nothing of that name to ask for")), status)


async def _body(request: Request) -> bytes:
    """Read the body. Raises UsageError as soon as it is too long."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise UsageError(f"the body of a request has at most {MAX_BODY} bytes")
    return bytes(data)


def _json(data: bytes, status: int = 200) -> Response:
    return Response(data, status, media_type="application/json")
