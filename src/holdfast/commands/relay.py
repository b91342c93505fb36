"""`holdfast relay`: parse, call, print."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from holdfast.commands.clickoptions import (
    SECTIONS,
    SectionedGroup,
    chosen_home,
    combine,
    context_home_option,
    duration,
)
from holdfast.commands.output import Answer, AnswerCommand, OneLine, json_option, need_extra
from holdfast.commands.store import note_store
from holdfast.errors import StartupError, UsageError

if TYPE_CHECKING:
    import ssl

    from holdfast.board.database.database import Transaction
    from holdfast.relay.natsbus import NatsOptions
    from holdfast.server.edges.address import WebSocketAddress

T = TypeVar("T")

DEFAULT: Final = "http://127.0.0.1:4655"
STORE_VARIABLE: Final = "HOLDFAST_RELAY_STORE"
NATS_VARIABLE: Final = "HOLDFAST_RELAY_NATS"


def _complete_store(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    note_store(context, parameter, value)
    return value or str(chosen_home(context) / "relay.db")


store_option = click.option(
    "--store",
    "address",
    metavar="PLACE",
    envvar=STORE_VARIABLE,
    callback=_complete_store,
    help=f"A file, or postgresql://… for many nodes [default: ${STORE_VARIABLE}, or relay.db in --home].",
)
place_options: Final = combine(context_home_option, store_option)
with_store: Final = combine(place_options, json_option)


@click.group(cls=SectionedGroup, sections=SECTIONS["relay"])
def relay() -> None:
    """Run a relay that reaches executors behind firewalls by id.

    An executor registers at a relay and stays connected. A client asks for it by its id, and their traffic
    passes through, encrypted from end to end. Executors and clients present a token.

    \b
    Examples:
      holdfast relay token add box --role executor --environment box
      holdfast relay serve
    """


@relay.group(cls=SectionedGroup, sections=SECTIONS["relay token"])
def token() -> None:
    """Manage who may register and connect.

    \b
    Example:
      holdfast relay token list
    """


@token.command(cls=AnswerCommand)
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["executor", "harness"]),
    help="Register as an executor, or connect as a harness [default: both]. Can be repeated.",
)
@click.option(
    "--environment",
    "environments",
    multiple=True,
    metavar="PATTERN",
    help="Environments it is for, with * and ? [default: all of its tenant]. Can be repeated.",
)
@click.option(
    "--tenant",
    default="default",
    show_default=True,
    help="Tenant of the token; tenants are isolated from each other.",
)
@click.option(
    "--expires", "expires_s", type=duration, metavar="DURATION", help="Valid for so long: 12h, 30d."
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Take the token in this file instead of a new one; - is standard input.",
)
@with_store
def add(
    address: str,
    name: str,
    roles: tuple[str, ...],
    environments: tuple[str, ...],
    tenant: str,
    expires_s: float | None,
    token_file: Path | None,
) -> Answer:
    """Make a token and print it, this one time.

    Only its digest is stored.

    \b
    Examples:
      holdfast relay token add box --role executor --environment box
      holdfast relay token add ann --role harness --environment 'ann-*' --expires 30d
    """
    from holdfast.relay import store
    from holdfast.relay.rules.access import Role, check_new

    given = None if token_file is None else _read_line(token_file, "a token")
    kinds = tuple(Role(role) for role in dict.fromkeys(roles)) or tuple(Role)
    patterns = environments or ("*",)
    check_new(name, tenant, kinds, patterns, given)
    made, text = _ask(
        address,
        lambda tx: store.add_token(
            tx,
            name=name,
            tenant=tenant,
            roles=kinds,
            environments=patterns,
            expires_ms=None if expires_s is None else int(expires_s * 1000),
            token=given,
        ),
        create=True,
    )
    shown: Answer = {"id": made.id, "tenant": made.tenant, "name": made.name}
    return shown if given is not None else {**shown, "token": text, "text": [text]}


def _read_line(file: Path, what: str) -> str:
    try:
        data = sys.stdin.buffer.readline() if str(file) == "-" else file.read_bytes()
        return data.decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{file} cannot be read as {what}") from None


@token.command("list", cls=AnswerCommand)
@with_store
def list_tokens(address: str) -> Answer:
    """List tokens: what each allows, never the token itself.

    \b
    Example:
      holdfast relay token list
    """
    from holdfast.relay import store

    found, now_ms = _ask(address, store.list_tokens)
    rows = [
        (one.id, one.tenant, one.name, ",".join(one.roles), ",".join(one.environments), one.state(now_ms))
        for one in found
    ]
    return {
        "tokens": [
            {
                "id": one.id,
                "tenant": one.tenant,
                "name": one.name,
                "roles": one.roles,
                "environments": one.environments,
                "expiresMs": one.expires_ms,
                "state": one.state(now_ms),
            }
            for one in found
        ],
        "text": ["  ".join(row) for row in rows],
        "table": (("id", "tenant", "name", "roles", "environments", "state"), rows),
    }


@token.command(cls=AnswerCommand)
@click.argument("named", metavar="ID|NAME")
@with_store
def revoke(address: str, named: str) -> Answer:
    """Revoke a token, and end what it opened.

    Executors and harnesses that used it are disconnected on every node within seconds.

    \b
    Example:
      holdfast relay token revoke box
    """
    from holdfast.relay import store

    ended = _ask(address, lambda tx: store.revoke_token(tx, named))
    return {"id": ended.id, "name": ended.name, "text": [f"revoked {ended.name} ({ended.id})"]}


@relay.command("list", cls=AnswerCommand)
@with_store
def list_(address: str) -> Answer:
    """List environments: which are connected, and where.

    \b
    Example:
      holdfast relay list
    """
    from holdfast.relay import store

    found = _ask(address, store.list_environments)
    rows = [(one.tenant, one.id, "offline" if one.node_url is None else one.node_url) for one in found]
    return {
        "environments": [
            {"tenant": one.tenant, "id": one.id, "online": one.node_url is not None, "node": one.node_url}
            for one in found
        ],
        "text": ["  ".join(row) for row in rows],
        "table": (("tenant", "environment", "node"), rows),
    }


@relay.command(cls=OneLine)
@click.option(
    "--listen",
    default=DEFAULT,
    show_default=True,
    metavar="URL",
    envvar="HOLDFAST_RELAY_LISTEN",
    help="http://IP:PORT; port 0 picks a free one.",
)
@click.option(
    "--public-url", metavar="URL", help="Where executors reach any node of the relay [default: --listen]."
)
@click.option(
    "--node-url", metavar="URL", help="Where harnesses reach this very node [default: --public-url]."
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="The certificate, with its chain, in PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its key [default: in --tls-cert].")
@click.option(
    "--nats",
    metavar="URL[,URL]",
    envvar=NATS_VARIABLE,
    help="tls:// or nats://HOST:PORT of NATS, which carries streams between nodes that have one address "
    f"[default: ${NATS_VARIABLE}].",
)
@click.option(
    "--nats-credentials",
    type=click.Path(path_type=Path),
    help="File with NATS credentials: USER:PASSWORD or a token.",
)
@click.option(
    "--nats-ca",
    type=click.Path(path_type=Path),
    help="CA certificates for NATS (PEM) [default: the system's].",
)
@click.option(
    "--nats-cert", type=click.Path(path_type=Path), help="Client certificate for NATS, with its key (PEM)."
)
@click.option(
    "--behind-proxy", is_flag=True, help="A proxy in front ends TLS and says who asks (X-Forwarded-For)."
)
@click.option(
    "--audit-log", type=click.Path(path_type=Path), help="Append what happens to this file, as JSON."
)
@click.option("--metrics", is_flag=True, help="Serve Prometheus metrics on /metrics, to this machine only.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Write the log as text or as JSON lines.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    envvar="HOLDFAST_LOG_LEVEL",
    help="Log only what is at least this severe.",
)
@place_options
def serve(
    listen: str,
    address: str,
    public_url: str | None,
    node_url: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    audit_log: Path | None,
    nats: str | None,
    nats_credentials: Path | None,
    nats_ca: Path | None,
    nats_cert: Path | None,
    **given: Any,
) -> None:
    """Serve the registry and the rendezvous until a signal ends it.

    Prints its address as one line on standard output. It cannot read the traffic. Without TLS it listens on
    this machine only, unless a proxy in front ends TLS.

    \b
    Examples:
      holdfast relay serve
      holdfast relay serve --listen http://0.0.0.0:443 --tls-cert cert.pem --public-url https://relay.example
    """
    from holdfast import log
    from holdfast.relay.node import RelayOptions

    style, level = given.pop("log_format"), given.pop("log_level")
    if given["metrics"]:
        with need_extra("metrics", "prometheus-client", "prometheus_client"):
            import prometheus_client  # noqa: F401
    options = RelayOptions(
        _parse_listen(listen),
        address,
        None if public_url is None else _check_url(public_url),
        None if node_url is None else _check_url(node_url),
        tls=_load_tls(tls_cert, tls_key),
        nats=_plan_nats(nats, nats_credentials, nats_ca, nats_cert),
        **given,
    )
    _check_exposure(options.address, safe=options.tls is not None or options.behind_proxy)
    if audit_log is not None:
        from holdfast.relay.audit import keep_in

        keep_in(audit_log)
    log.set_up(style=style, level=level)
    _run(options)


def _parse_listen(text: str) -> "WebSocketAddress":
    from holdfast.server.edges.address import WebSocketAddress, parse

    if text.startswith("http://"):
        found = parse(f"ws://{text.removeprefix('http://')}")
        if isinstance(found, WebSocketAddress):
            return found
    raise StartupError("--listen must be http://IP:PORT", remedy=f"such as {DEFAULT}")


def _check_url(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{url} is not an address such as https://relay.example")
    return url.rstrip("/")


def _load_tls(cert: Path | None, key: Path | None) -> "ssl.SSLContext | None":
    if cert is None:
        if key is not None:
            raise UsageError("--tls-key needs --tls-cert")
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError):
        raise StartupError(
            f"cannot use {cert} as a certificate with its key", remedy="both are PEM files that you may read"
        ) from None
    return context


def _plan_nats(
    servers: str | None, credentials: Path | None, ca: Path | None, cert: Path | None
) -> "NatsOptions | None":
    if not servers:
        if credentials or ca or cert:
            raise UsageError("--nats-credentials, --nats-ca and --nats-cert need --nats")
        return None
    with need_extra("nats", "nats-py", "nats"):
        import nats  # noqa: F401
    from holdfast.relay.natsbus import NatsOptions, check_secrecy, parse_servers

    found = parse_servers(servers)
    tls = _trust_nats(ca, cert) if found[0].startswith("tls:") else None
    if tls is None and (ca or cert):
        raise UsageError("--nats-ca and --nats-cert are for an address of tls://")
    if credentials is None:
        return NatsOptions(found, tls=tls)
    for url in found:
        check_secrecy(url, secret=True)
    first, colon, second = _read_line(credentials, "credentials of NATS").partition(":")
    if colon:
        return NatsOptions(found, user=first, password=second, tls=tls)
    return NatsOptions(found, token=first, tls=tls)


def _trust_nats(ca: Path | None, cert: Path | None) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert)
    except (OSError, ssl.SSLError):
        raise StartupError("cannot use --nats-ca or --nats-cert", remedy="both are PEM files") from None
    return context


def _check_exposure(address: "WebSocketAddress", *, safe: bool) -> None:
    if not address.loopback and not safe:
        raise StartupError(
            f"refusing to listen on {address.host} without TLS: tokens could be read on the way",
            remedy="give --tls-cert FILE, or --behind-proxy if a proxy in front ends TLS",
        )


def _run(options: Any) -> None:
    """Run on uvloop when it is installed, otherwise on asyncio's own loop."""
    from holdfast.relay.node import serve as run

    def announce(address: str) -> None:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()

    try:
        import uvloop
    except ImportError:
        asyncio.run(run(options, announce))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(options, announce))


def _ask(address: str, verb: "Callable[[Transaction], T]", *, create: bool = False) -> T:
    """Run a transaction on the store, and close it."""
    from holdfast.relay.store import open_database

    database = open_database(address, create=create)
    try:
        return database.write(verb)
    finally:
        database.close()
