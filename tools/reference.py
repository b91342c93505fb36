"""Write docs/reference from the tables in the code: commands, methods, errors, numbers, guarantees, causes.

The same code gives the same bytes, so `make docs` can tell when a page is out of date.
"""

import ast
import inspect
import json
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec import NODEFAULT
from msgspec import inspect as shapes

from holdfast.agentconfig.decision import MATRIX, AgentMode
from holdfast.cli import cli
from holdfast.errors import FACES, INTERNAL, HoldfastError
from holdfast.sandbox.backends.guarantees import BACKENDS, GUARANTEES, GuaranteeRow
from holdfast.sandbox.watcher.foresight import access
from holdfast.sandbox.watcher.notifyfilter import CALLS, LISTEN, SEND, Call
from holdfast.wire.methods import METHODS, MethodRow
from holdfast.wire.paths import PathUri
from tools.agent_pages import faults_page, records_page
from tools.api_page import api_page
from tools.doctor_pages import exit_codes_page, findings_page, fingerprints_page
from tools.markdown import page, table
from tools.tool_pages import tools_page

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "holdfast"
REFERENCE: Final = ROOT / "docs" / "reference"
HELP_COLUMNS: Final = 100  # fixed: the page must not depend on the width of somebody's terminal


# --- commands


def commands(
    command: click.Command, name: str, above: click.Context | None = None
) -> Iterator[click.Context]:
    """The command and everything below it, each ready to be asked for its help."""
    settings = {**command.context_settings, "terminal_width": HELP_COLUMNS}
    context = click.Context(command, info_name=name, parent=above, **settings)
    yield context
    if isinstance(command, click.Group):
        for below in sorted(command.list_commands(context)):
            if (found := command.get_command(context, below)) is not None:
                yield from commands(found, below, context)


def cli_page() -> str:
    """Every command as its own --help says it."""
    parts = [
        f"## {context.command_path}\n\n```\n{context.get_help()}\n```"
        for context in commands(cli, "holdfast")
    ]
    return page("Commands", "What each command prints for `--help`.", *parts)


# --- methods


class Member(NamedTuple):
    """One field of an object on the wire."""

    name: str
    type: str
    when_absent: str


def type_text(shape: shapes.Type) -> str:
    """A type in the words of JSON; a named object links to its own table."""
    match shape:
        case shapes.StrType():
            return "string"
        case shapes.BoolType():
            return "boolean"
        case shapes.FloatType():
            return "number"
        case shapes.BytesType():
            return "base64"
        case shapes.NoneType():
            return "null"
        case shapes.AnyType():
            return "anything"
        case shapes.IntType(ge=low, le=high):
            least = "" if low is None else f" ≥ {low}"
            return f"integer{least}" if high is None else f"integer {low} to {high}"
        case shapes.LiteralType(values=values):
            return " or ".join(f"`{json.dumps(value)}`" for value in values)
        case shapes.ListType(item_type=item):
            return f"list of {type_text(item)}"
        case shapes.DictType(value_type=value):
            return f"object of {type_text(value)}"
        case shapes.CustomType(cls=cls) if cls is PathUri:
            return "file: URI"
        case shapes.StructType(cls=cls):
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
        case shapes.UnionType(types=types):
            return " or ".join(type_text(each) for each in types)
        case _:
            raise AssertionError(f"no message has a member of type {shape}")


def when_absent(field: shapes.Field) -> str:
    """What a missing member means."""
    if field.required:
        return "required"
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return "-"  # left out
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    return "the same as null" if value is None else f"`{json.dumps(value)}`"


def members(shape: shapes.StructType) -> list[Member]:
    tag = [Member(shape.tag_field, f'`"{shape.tag}"`', "required")] if shape.tag_field else []
    fields = [Member(f.encode_name, type_text(f.type), when_absent(f)) for f in shape.fields]
    return [*tag, *fields]


def objects(shape: shapes.Type) -> Iterator[shapes.StructType]:
    """Every object inside a type, outermost first."""
    match shape:
        case shapes.StructType(fields=fields):
            yield shape
            for field in fields:
                yield from objects(field.type)
        case shapes.ListType(item_type=inner) | shapes.DictType(value_type=inner):
            yield from objects(inner)
        case shapes.UnionType(types=types):
            for each in types:
                yield from objects(each)


def struct_of(method: MethodRow) -> shapes.StructType:
    shape = shapes.type_info(method.params)
    if not isinstance(shape, shapes.StructType):
        raise AssertionError("parameters are an object")
    return shape


def members_table(shape: shapes.StructType) -> str:
    rows = [(f"`{member.name}`", member.type, member.when_absent) for member in members(shape)]
    return table(("member", "type", "if absent"), rows) if rows else "No members."


def methods_page() -> str:
    """Every method with its parameters, then the objects they are made of."""
    overview, parts = [], []
    inner: dict[str, shapes.StructType] = {}
    for method in METHODS.values():
        lane = "control" if method.control else "ordinary"
        origin = "ours" if method.ours else "protocol"
        anchor = re.sub(r"[^a-z0-9]", "", method.name.lower())
        overview.append((f"[`{method.name}`](#{anchor})", method.family, lane, origin))
        shape = struct_of(method)
        parts.append(f"### {method.name}\n\n{members_table(shape)}")
        for field in shape.fields:
            inner |= {found.cls.__name__: found for found in objects(field.type)}
    nested = [f"### {name}\n\n{members_table(inner[name])}" for name in sorted(inner)]
    return page(
        "Methods",
        "Requests a client may send, with the parameters of each. With `--concurrent-requests` above 1 a\n"
        "request waits for a slot of its lane only. A method that is *ours* is not part of the protocol\n"
        "we share with Codex; a client finds out whether it may call it from the capabilities in\n"
        "`environment/info`. Unknown members are ignored.",
        table(("method", "family", "lane", "origin"), overview),
        "## Parameters",
        *parts,
        "## Objects",
        *nested,
    )


# --- errors


def first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def errors_page() -> str:
    """Every error class and its faces outside."""
    rows: list[tuple[str, ...]] = [
        (
            f"`{cls.__name__}`",
            "" if cls.__bases__ == (HoldfastError,) else f"`{cls.__bases__[0].__name__}`",
            first_line(cls),
            str(face.rpc),
            str(face.exit),
            str(face.http),
            "yes" if cls.retryable else "no",
        )
        for cls, face in FACES.items()
    ]
    rows.append(("anything else", "", "A mistake of ours.", *(str(number) for number in INTERNAL), "no"))
    return page(
        "Errors",
        "Codes and classes are part of the contract; texts are for people and may change.",
        table(("class", "kind of", "meaning", "JSON-RPC code", "exit status", "HTTP status", "retry"), rows),
    )


# --- numbers


class Number(NamedTuple):
    """A constant of a module, as written, and why it is what it is."""

    name: str
    value: str
    reason: str


def comments(lines: Sequence[str]) -> list[str]:
    """The comments that end lines of a statement."""
    return [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(iter(lines).__next__)
        if token.type == tokenize.COMMENT and token.line.strip() != token.string.strip()
    ]


def is_number(node: ast.expr) -> bool:
    """Arithmetic on numbers and named numbers."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.Name(id=name):
            return name.isupper()
        case _:
            return False


def numbers(path: Path) -> list[Number]:
    """The public numbers of a module that say why; one out of a kernel header is no choice of ours."""
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    found = []
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="Final"), value=ast.expr() as value
            ) if not name.startswith("_") and is_number(value):
                reason = " ".join(comments(lines[node.lineno - 1 : node.end_lineno]))
                if reason and not reason.endswith(".h"):
                    found.append(Number(name, ast.get_source_segment(source, value) or "", reason))
    return found


def limits_page() -> str:
    """Every public number and its reason, by module."""
    parts = []
    for path in sorted(SOURCE.rglob("*.py")):
        rows = [(f"`{number.name}`", f"`{number.value}`", number.reason) for number in numbers(path)]
        if rows:
            module = path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".")
            parts.append(f"## {module}\n\n{table(('name', 'value', 'reason'), rows)}")
    return page(
        "Limits",
        "The bounds and times of the server, as the code states them. `_S` is in seconds, `_BYTES` in bytes.",
        *parts,
    )


# --- guarantees


def guarantee(row: GuaranteeRow) -> str:
    """One guarantee under every backend, and what tries it."""
    tried = ", ".join(f"`{name}`" for name in row.attempts)
    rows = [(backend, row.under(backend).verdict, row.under(backend).why) for backend in BACKENDS]
    return "\n\n".join(
        (
            f"### {row.id}",
            f"{row.promise}.",
            table(("backend", "holds", "how, or why not"), rows),
            f"Tried by {tried}." if tried else "No attempt tries this.",
        )
    )


def sandbox_page() -> str:
    """What holds with which backend."""
    overview: list[tuple[str, ...]] = [
        (f"[{row.promise}](#{row.id})", *(row.under(backend).verdict for backend in BACKENDS))
        for row in GUARANTEES
    ]
    return page(
        "Sandbox",
        "What holds with which backend, at its best on a host that has what it needs. What a host lacks is\n"
        "in the answer to every start.\n"
        "The attempts are those of `holdfast.doctor.escape.attempts`, made from inside the sandbox.",
        table(("guarantee", *BACKENDS), overview),
        "## Guarantees",
        *map(guarantee, GUARANTEES),
        "## Watched calls",
        "Which calls of a watched command its watcher hears of, and what a refusal of them is called in a\n"
        "report. Each is a denial only with one of these answers of the kernel: `EROFS`; `EACCES` below\n"
        "something hidden, or where Landlock stands alone; `EBUSY` for what the sandbox holds in place;\n"
        "`EXDEV` for a move or a link of which one end must not change; without a network `ENETUNREACH` and\n"
        "`EADDRNOTAVAIL`.",
        table(("call", "heard of", "access"), [watched_call(call) for call in (*CALLS, SEND, LISTEN)]),
    )


def watched_call(call: Call) -> tuple[str, str, str]:
    """One row of the table of watched calls."""
    heard = "always"
    if call in (SEND, LISTEN):
        heard = "with an address, while the network is off" if call is SEND else "if it asks for a listener"
    elif call.bits is not None:
        heard = "if it wants to write, create or truncate"
    named = {access(aim, exists=exists) for aim in call.aims for exists in (True, False)}
    if call.name in ("connect", "bind"):
        named.add("socket")
    return f"`{call.name}`", heard, ", ".join(sorted(named))


# --- configuration of agents


def agents_page() -> str:
    """The decision matrix."""
    rows = [
        (
            f"`{row.id}`",
            "; ".join(condition.text for condition in row.when) or "anything else",
            "nothing is launched" if row.mode is AgentMode.NONE else f"`{row.mode}`",
            row.severity.value,
            row.reason,
            "; ".join(
                remedy.format(agent="AGENT", install="npm install -g PACKAGE@latest")
                for remedy in row.remedies
            ),
        )
        for row in MATRIX
    ]
    return page(
        "Agent configuration",
        "How `holdfast config AGENT` decides. The first row of which all conditions hold decides. A probe\n"
        "that could not be made, or a version that is not known, never matches a row that allows more. The\n"
        "boundary is what the operator declared, never what was found.",
        table(("row", "if", "mode", "severity", "reason", "what to do"), rows),
    )


PAGES: Final[dict[str, Callable[[], str]]] = {
    "api.md": api_page,
    "cli.md": cli_page,
    "methods.md": methods_page,
    "errors.md": errors_page,
    "limits.md": limits_page,
    "sandbox.md": sandbox_page,
    "agent-configuration.md": agents_page,
    "agents.md": faults_page,
    "agent-records.md": records_page,
    "mcp.md": tools_page,
    "fingerprints.md": fingerprints_page,
    "findings.md": findings_page,
    "exit-codes.md": lambda: exit_codes_page(commands(cli, "holdfast")),
}


def write(folder: Path) -> None:
    """Write every page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(make(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE)
