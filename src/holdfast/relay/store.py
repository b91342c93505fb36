"""The state of a relay: tokens, nodes, registrations, which node holds which executor, and authorizations.

A single node keeps it in a SQLite file, several share a PostgreSQL server, through the board's SQL layer. A
change is one transaction. Nodes do not notify each other. What a node must do after another node's change is
a row in `relay_orders`, which it takes with its next heartbeat, so no commit wakes another node up.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from holdfast import decoding
from holdfast.board.database import opening
from holdfast.board.database.database import Database, Row, Schema, Transaction
from holdfast.errors import Conflict, NotFound, UsageError
from holdfast.relay.rules.access import PREFIX, Role, Token, digest_of
from holdfast.relay.rules.signedurl import HARNESS_S, KEY_BYTES
from holdfast.relay.rules.switchboard import Held
from holdfast.wire.registry import PublicKey

P = ParamSpec("P")
T = TypeVar("T")

LEASE_MS: Final = 15_000  # a node without a heartbeat for so long holds nothing
FORGOTTEN_MS: Final = 3_600_000  # after the end of its lease, until a node and its orders are removed
UNUSED_MS: Final = 30 * 86_400_000  # an environment that no executor registered for so long is removed
TAKEOVER_MS: Final = 15_000  # time for a fresh registration to dial before an older one may take over
MOST_ENVIRONMENTS: Final = 100_000  # of one tenant, which chooses the ids; a row is kept for a month
POOL: Final = 4  # connections to PostgreSQL; SQLite has one writer anyway
SIGNING: Final = "signing"
SCHEMA: Final = Schema(
    Path(__file__).parent / "sql",
    "relay store",
    "holdfast relay token add NAME",
    "remove {} and add the tokens again; executors register by themselves",
    "relay_schema_version",
)


class Online(NamedTuple):
    """Where an executor is connected."""

    registration: str
    public_key: PublicKey
    node_url: str


class Order(NamedTuple):
    """What a node must end: all that a token opened, or the socket of an environment up to an epoch."""

    kind: str
    tenant: str
    subject: str
    epoch: int


class EnvironmentRow(NamedTuple):
    tenant: str
    id: str
    registration: str
    token_id: str
    registered_ms: int
    connected_ms: int | None
    node_url: str | None


# --- tokens


def add_token(
    tx: Transaction,
    *,
    name: str,
    tenant: str,
    roles: tuple[Role, ...],
    environments: tuple[str, ...],
    expires_ms: int | None,
    token: str | None,
) -> tuple[Token, str]:
    """Create a token and its row; the token is shown once and never again.

    Raises:
        Conflict: the name or the token exists already.
    """
    text = token or f"{PREFIX}{secrets.token_urlsafe(32)}"
    row = tx.one(
        "token_add",
        id=f"tok_{secrets.token_hex(6)}",
        tenant=tenant,
        name=name,
        digest=digest_of(text),
        roles=_encode(roles),
        environments=_encode(environments),
        now=tx.now_ms,
        expires=None if expires_ms is None else tx.now_ms + expires_ms,
    )
    if row is None:
        raise Conflict(f"{tenant} has a token {name} already, or the token is in use")
    return _token(row), text


def list_tokens(tx: Transaction) -> tuple[list[Token], int]:
    """All tokens, and the current time."""
    return [_token(row) for row in tx.all("token_list")], tx.now_ms


def find_token(tx: Transaction, digest: str) -> tuple[Token | None, int]:
    """The token of this digest, and the current time."""
    row = tx.one("token_by_digest", digest=digest)
    return (None if row is None else _token(row)), tx.now_ms


def revoke_token(tx: Transaction, named: str) -> Token:
    """Revoke a token, and end everything that it opened on any node.

    Raises:
        NotFound: there is no token of this id or name.
        UsageError: several tenants have one of this name.
    """
    found = tx.all("token_named", named=named)
    if not found:
        raise NotFound(f"there is no token {named}", remedy="holdfast relay token list")
    if len(found) > 1:
        raise UsageError(
            f"several tenants have a token {named}", remedy="name it by its id: holdfast relay token list"
        )
    return _end(tx, str(found[0]["id"])) or _token(found[0])


def _end(tx: Transaction, token_id: str) -> Token | None:
    """Revoke a token and order every node to end what it opened; None: it was revoked before."""
    row = tx.one("token_revoke", id=token_id, now=tx.now_ms)
    if row is None:
        return None
    for node in tx.all("nodes_known"):  # also one that is cut off: it keeps its sockets, and comes back
        _order(tx, str(node["id"]), "token", str(row["tenant"]), token_id)
    return _token(row)


# --- nodes


def beat(tx: Transaction, node: str, url: str) -> list[Order] | None:
    """Take the heartbeat of a node and return its orders, each once.

    None: the node was unknown. So it may have missed orders and must drop all its sockets.
    """
    lease = tx.now_ms + LEASE_MS
    if tx.one("node_beat", node=node, url=url, lease=lease) is None:
        tx.all("node_join", node=node, url=url, now=tx.now_ms, lease=lease)
        return None
    rows = tx.all("orders_take", node=node)
    return [
        Order(str(row["kind"]), str(row["tenant"]), str(row["subject"]), _int(row["epoch"])) for row in rows
    ]


def tidy(tx: Transaction) -> None:
    """Remove what has expired: tokens with all that they opened, authorizations, nodes that are gone."""
    for row in tx.all("tokens_expired", now=tx.now_ms):
        _end(tx, str(row["id"]))
    tx.all("authorizations_expired", now=tx.now_ms)
    tx.all("environments_forgotten", before=tx.now_ms - UNUSED_MS)
    for row in tx.all("nodes_gone", before=tx.now_ms - FORGOTTEN_MS):
        leave(tx, str(row["id"]))


def leave(tx: Transaction, node: str) -> None:
    """Note that a node holds nothing any more."""
    tx.all("node_let_go", node=node)
    tx.all("orders_take", node=node)
    tx.all("node_leave", node=node)


def signing_key(tx: Transaction) -> str:
    """The signing key of addresses, the same on all nodes; the first caller creates it."""
    tx.all("key_add", name=SIGNING, value=secrets.token_hex(KEY_BYTES))
    return str(tx.row("key_get", name=SIGNING)["value"])


# --- environments


def register(tx: Transaction, token: Token, environment: str, key: PublicKey, key_digest: str) -> str | None:
    """Register an executor: return the registration it has, or a new one that ends another executor's.

    None: the tenant has the maximum number of environments.
    """
    place = {"tenant": token.tenant, "id": environment}
    row = tx.one("environment_lock", **place)
    if row is not None and row["key_digest"] == key_digest:
        return str(tx.row("environment_same_key", **place, token_id=token.id, now=tx.now_ms)["registration"])
    if row is not None and row["node"] is not None:
        _order(tx, str(row["node"]), "socket", token.tenant, environment, _int(row["epoch"]))
    if (
        row is None
        and tx.one("environment_after", tenant=token.tenant, most=MOST_ENVIRONMENTS - 1) is not None
    ):
        return None
    made = tx.row(
        "environment_register",
        **place,
        registration=f"reg_{secrets.token_hex(16)}",
        public_key=msgspec.json.encode(key).decode(),
        key_digest=key_digest,
        token_id=token.id,
        now=tx.now_ms,
    )
    return str(made["registration"])


def attach(tx: Transaction, tenant: str, environment: str, registration: str, node: str) -> Held | str:
    """Attach an executor's socket to this node, or return the code of the refusal.

    `route_unavailable`: a newer registration holds the environment, and this one must wait.
    """
    place = {"tenant": tenant, "id": environment}
    row = tx.one("environment_lock", **place)
    if row is None:
        return "unknown_route"
    if row["registration"] != registration:
        fresh = _int(row["registered_ms"]) > tx.now_ms - TAKEOVER_MS
        online = tx.one("environment_online", **place, now=tx.now_ms) is not None
        return "route_unavailable" if fresh or online else "unexpected_executor_registration_id"
    if not _is_valid(tx, str(row["token_id"])):
        return "invalid_secret"
    if row["node"] not in (None, node):
        _order(tx, str(row["node"]), "socket", tenant, environment, _int(row["epoch"]))
    epoch = _int(tx.row("environment_attach", **place, node=node, now=tx.now_ms)["epoch"])
    return Held(tenant, environment, registration, str(row["token_id"]), epoch)


def detach(tx: Transaction, held: Held, node: str) -> None:
    """Note that the socket is gone; a later socket is not affected."""
    tx.all("environment_detach", tenant=held.tenant, id=held.environment, node=node, epoch=held.epoch)


def find_node(tx: Transaction, tenant: str, environment: str, registration: str) -> str | None:
    """The node that has the executor of this registration; None: no node has it."""
    row = tx.one("environment_online", tenant=tenant, id=environment, now=tx.now_ms)
    return None if row is None or row["registration"] != registration else str(row["node"])


def authorize(
    tx: Transaction, token: Token, environment: str, key_digest: str
) -> tuple[Online, str, str, int] | None:
    """Authorize a harness with this key; None: the executor is not connected.

    Returns where the executor is, the id of the bundle, the authorization, and when both expire, in
    milliseconds.
    """
    row = tx.one("environment_online", tenant=token.tenant, id=environment, now=tx.now_ms)
    if row is None or not _is_valid(tx, str(row["token_id"])):
        return None
    online = Online(
        str(row["registration"]),
        decoding.decode(str(row["public_key"]), PublicKey),
        str(row["node_url"]),
    )
    id_, text = secrets.token_hex(12), secrets.token_urlsafe(32)
    expires = tx.now_ms + HARNESS_S * 1000
    tx.all(
        "authorization_add",
        id=id_,
        digest=digest_of(text),
        tenant=token.tenant,
        environment=environment,
        registration=online.registration,
        key_digest=key_digest,
        token_id=token.id,
        expires=expires,
    )
    return online, id_, text, expires


def dial(tx: Transaction, id_: str, tenant: str, environment: str, registration: str) -> str | None:
    """The token of the harness that dials with this bundle for the first time; None: it may not."""
    row = tx.one(
        "authorization_dial",
        id=id_,
        tenant=tenant,
        environment=environment,
        registration=registration,
        now=tx.now_ms,
    )
    token_id = None if row is None else str(row["token_id"])
    return token_id if token_id is not None and _is_valid(tx, token_id) else None


def use(
    tx: Transaction, token: Token, environment: str, registration: str, key_digest: str, authorization: str
) -> bool:
    """Whether a harness with this key is admitted by this authorization, which works once."""
    current = tx.one("environment_lock", tenant=token.tenant, id=environment)
    if current is None or current["registration"] != registration:
        return False
    row = tx.one(
        "authorization_use",
        tenant=token.tenant,
        environment=environment,
        registration=registration,
        key_digest=key_digest,
        digest=digest_of(authorization),
        now=tx.now_ms,
    )
    return row is not None and _is_valid(tx, str(row["token_id"]))


def list_environments(tx: Transaction) -> list[EnvironmentRow]:
    return [
        EnvironmentRow(
            str(row["tenant"]),
            str(row["id"]),
            str(row["registration"]),
            str(row["token_id"]),
            _int(row["registered_ms"]),
            None if row["connected_ms"] is None else _int(row["connected_ms"]),
            None if row["node_url"] is None else str(row["node_url"]),
        )
        for row in tx.all("environment_list", now=tx.now_ms)
    ]


def _order(tx: Transaction, node: str, kind: str, tenant: str, subject: str, epoch: int = 0) -> None:
    tx.all("order_add", node=node, kind=kind, tenant=tenant, subject=subject, epoch=epoch)


def _is_valid(tx: Transaction, token_id: str) -> bool:
    row = tx.one("token_by_id", id=token_id)
    return row is not None and _token(row).state(tx.now_ms) == "valid"


def _token(row: Row) -> Token:
    lists = {name: msgspec.json.decode(str(row[name])) for name in ("roles", "environments")}
    return decoding.convert({**row, **lists}, Token)


def _encode(words: tuple[str, ...]) -> str:
    return msgspec.json.encode(words).decode()


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise AssertionError("the column is a number")
    return value


# --- databases


def open_database(address: str, *, create: bool = True) -> Database:
    """Open a database by its address: a path, or a postgresql:// URL.

    Raises:
        NotFound: it does not exist and may not be created.
        Unreachable: the server does not answer.
    """
    return opening.open_database(address, create=create, schema=SCHEMA)


class RelayStore:
    """A relay's store for its event loop: queries run in threads, each with its own connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        most = POOL if opening.is_shared(address) else 1
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="relay-store")
        self._own = threading.local()
        self._opened: list[Database] = []

    async def write(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Execute a verb in a transaction. Raises as `Database.write` does."""
        return await self._ask(lambda database: database.write(lambda tx: verb(tx, *args, **kwargs)))

    async def read(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._ask(lambda database: database.read(lambda tx: verb(tx, *args, **kwargs)))

    async def _ask(self, question: Callable[[Database], T]) -> T:
        return await asyncio.wrap_future(self._threads.submit(lambda: question(self._database())))

    def _database(self) -> Database:
        if not hasattr(self._own, "database"):
            self._own.database = open_database(self._address)
            self._opened.append(self._own.database)
        found: Database = self._own.database
        return found

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        for database in self._opened:
            database.close()
