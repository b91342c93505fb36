"""The house rules that a machine can check: direction of imports, purity, size, names, mirrored tests."""

import ast
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.rows import every_row

TESTS = Path(__file__).parent
SRC = TESTS.parents[1] / "src" / "holdfast"
MODULES = sorted(path.relative_to(SRC) for path in SRC.rglob("*.py"))
KNOWN = frozenset(MODULES)

PURE_STDLIB = {
    "_collections",
    "_collections_abc",
    "base64",
    "binascii",
    "bisect",
    "codecs",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "errno",
    "fnmatch",
    "functools",
    "hashlib",
    "hmac",
    "ipaddress",
    "itertools",
    "json",
    "re",
    "shlex",
    "string",
    "struct",
    "sys",
    "tomllib",
    "typing",
    "unicodedata",
    "urllib.parse",
    "weakref",
}
PURE_THIRD_PARTY = {"cryptography", "msgspec", "pybase64"}
DECODING = Path("decoding.py")  # the only place where msgspec sees a type for the first time
LAYERS = [  # lower may not import higher; names on one line may not import each other
    {"light"},
    {"decoding", "errors", "home", "log"},
    {"local", "tracing"},
    {"wire", "sandbox"},
    {"egress", "unixrpc"},
    {"rendezvous"},
    {"confine", "agentconfig", "board"},
    {"server"},
    {"client"},
    {"sync", "exec", "relay", "direct"},
    {"doctor"},
    {"agents", "handoff"},
    {"dispatch"},
    {"mcp", "web"},
    {"commands"},
    {"cli"},
    {"entry"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MAX_LINES = 600
MAX_MODULES = 20  # in a folder
INNER = {m.parent for m in MODULES if m.name == "__init__.py" and len(m.parts) > 2}
# Those with a docstring that says what they import and what they open to others.
ROOMS = sorted(".".join(folder.parts) for folder in INNER | {Path("confine"), Path("egress"), Path("local")})
SHAPELESS_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}


@functools.cache
def tree(module: Path) -> ast.Module:
    return ast.parse((SRC / module).read_text("utf-8"))


@functools.cache
def imports(module: Path) -> Sequence[str]:
    """Dotted names of everything imported, also inside functions; ours down to the module.

    `holdfast.light` stands for parts of the standard library, and counts as such.
    """
    return tuple(_imports(module))


def _imports(module: Path) -> Iterator[str]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if source == "holdfast.light":
                yield "typing"
                continue
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                if inner == "holdfast.light":
                    yield "typing"
                else:
                    yield inner if is_ours(inner) else source


def is_ours(name: str) -> bool:
    """Is this one of our modules? What a package's `__init__` exports is not."""
    return name.startswith("holdfast.") and module_of(name) in KNOWN


def module_of(name: str) -> Path:
    return Path(*name.split(".")[1:]).with_suffix(".py")


def is_pure(module: Path) -> bool:
    """Only what has the words is parsed, as every worker of the tests asks this of every module."""
    said = "Pure module"
    return said in (SRC / module).read_text("utf-8") and said in (ast.get_docstring(tree(module)) or "")


def decides(module: Path) -> bool:
    """A module without a function only declares shapes; the table of methods tests those."""
    return any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree(module)))


PURE = [module for module in MODULES if is_pure(module)]


def test_the_rules_have_something_to_check() -> None:
    assert Path("wire/rpc.py") in PURE
    assert Path("server/processes/eventlog.py") in PURE
    assert Path("server/connection.py") in MODULES
    assert Path("server/connection.py") not in PURE
    assert "holdfast.wire.rpc" in imports(Path("server/connection.py"))


@every_row("module", MODULES, ids=str)
def test_imports_are_absolute(module: Path) -> None:
    assert not [
        node.lineno for node in ast.walk(tree(module)) if isinstance(node, ast.ImportFrom) and node.level
    ]


@every_row("module", MODULES, ids=str)
def test_imports_point_downwards(module: Path) -> None:
    here = module.parts[0].removesuffix(".py")
    if here == "__init__":
        return
    for name in filter(is_ours, imports(module)):
        there = name.split(".")[1]
        assert there == here or RANK[there] < RANK[here], f"{here} must not import {name}"


@functools.cache
def of_ours(module: Path) -> frozenset[str]:
    """Every module of ours that it imports, by its name below `holdfast`."""
    return frozenset(name.removeprefix("holdfast.") for name in imports(module) if is_ours(name))


def name_of(module: Path) -> str:
    return ".".join(module.with_suffix("").parts)


def room_of(name: str) -> str:
    """The folder of a module; a module of the top level is a room by itself."""
    return name.rpartition(".")[0] or name


def said_of(room: str, heading: str) -> set[str]:
    """What the docstring of a room lists behind a heading."""
    about = ast.get_docstring(tree(Path(*room.split("."), "__init__.py"))) or ""
    listed = re.search(rf"^{heading}: ((?:.|\n)+?)\.(?:\n|$)", about, re.MULTILINE)
    assert listed, f"the docstring of {room} has no line '{heading}: ...'"
    return set(re.split(r",\s+", listed[1])) - {"nothing of ours"}


@every_row("room", ROOMS, ids=str)
def test_a_room_imports_what_it_says(room: str) -> None:
    inside = [module for module in MODULES if room_of(name_of(module)) == room]
    found = {room_of(name) for module in inside for name in of_ours(module)} - {room}
    assert found == said_of(room, "Imports")


@every_row("room", ROOMS, ids=str)
def test_others_import_only_what_a_room_opens_to_them(room: str) -> None:
    outside = [module for module in MODULES if room_of(name_of(module)) != room]
    used = {name for module in outside for name in of_ours(module) if room_of(name) == room}
    assert {name.rpartition(".")[2] for name in used} == said_of(room, "Open to other rooms")


@every_row("room", sorted({room.split(".")[0] for room in ROOMS}), ids=str)
def test_the_parts_of_a_room_import_each_other_in_one_direction(room: str) -> None:
    """A part is a folder in it, or a module that is in none."""

    def part(name: str) -> str:
        return ".".join(name.split(".")[:2])

    uses: dict[str, set[str]] = {}
    for module in MODULES:
        if module.parts[0] == room and module.name != "__init__.py":
            here = part(name_of(module))
            there = {part(name) for name in of_ours(module) if name.split(".")[0] == room}
            uses.setdefault(here, set()).update(there - {here})
    while free := [one for one, others in uses.items() if not others & set(uses)]:
        for one in free:
            del uses[one]
    assert not uses, f"these import each other in a circle: {sorted(uses)}"


@every_row("folder", sorted({m.parent for m in MODULES}), ids=str)
def test_a_folder_can_be_taken_in_at_a_glance(folder: Path) -> None:
    assert len([module for module in MODULES if module.parent == folder]) <= MAX_MODULES


@every_row("module", [m for m in MODULES if m.parts[0] == "client"], ids=str)
def test_the_client_meets_the_server_only_in_the_messages(module: Path) -> None:
    assert not [name for name in imports(module) if name.startswith("holdfast.server")]


@every_row("module", PURE, ids=str)
def test_a_module_that_says_it_is_pure_is_pure(module: Path) -> None:
    for name in imports(module):
        if is_ours(name):
            assert is_pure(module_of(name)), f"imports impure {name}"
        else:
            allowed = PURE_STDLIB | PURE_THIRD_PARTY | ({"threading"} if module == DECODING else set())
            assert name in allowed or name.split(".")[0] in allowed, f"imports {name}"


@every_row("module", PURE, ids=str)
def test_a_pure_module_asks_the_interpreter_only_for_its_platform(module: Path) -> None:
    attributes = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "sys"}
    assert used <= {"platform"}
    assert not [n for n in ast.walk(tree(module)) if isinstance(n, ast.ImportFrom) and n.module == "sys"]


@every_row("module", [module for module in PURE if decides(module)], ids=str)
def test_a_pure_module_that_decides_has_its_own_unit_tests(module: Path) -> None:
    assert (TESTS / module.parent / f"test_{module.name}").is_file()


def test_every_message_is_declared_in_a_pure_module() -> None:
    wire = [module for module in MODULES if module.parts[0] == "wire" and module.name != "__init__.py"]
    assert [module for module in wire if not is_pure(module)] == []


@pytest.mark.parametrize("program", ["launcher", "watcher"])
def test_the_launcher_needs_nothing_but_the_standard_library_and_its_own_kind(program: str) -> None:
    """It runs without site-packages, and every command pays for what it imports."""
    waiting, seen = [Path(f"sandbox/{program}/{program}.py")], set()
    while waiting:
        module = waiting.pop()
        seen.add(module.name)
        for name in imports(module):
            if is_ours(name):
                assert module_of(name).parts[0] == "sandbox", f"{module} imports {name}"
                waiting += [found for found in [module_of(name)] if found.name not in seen]
            else:
                assert name.split(".")[0] in sys.stdlib_module_names, f"{module} imports {name}"
    assert {"orders.py", "kernel.py", "notifyfilter.py"} <= seen


def shows_a_type(call: ast.Call) -> bool:
    """Is this a call of msgspec that looks into a type? Without a type there is nothing to look into."""
    name = ast.unparse(call.func)
    if not name.startswith("msgspec."):
        return False
    match name.rpartition(".")[2]:
        case "convert" | "Decoder":
            return True
        case "decode":
            return len(call.args) > 1 or bool(call.keywords)
    return False


@every_row("module", [module for module in MODULES if module != DECODING], ids=str)
def test_a_type_is_used_for_the_first_time_by_one_thread(module: Path) -> None:
    nodes = list(ast.walk(tree(module)))
    assert [ast.unparse(call) for call in nodes if isinstance(call, ast.Call) and shows_a_type(call)] == []
    from_msgspec = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "msgspec"]
    taken = {alias.name for node in from_msgspec for alias in node.names}
    assert not taken & {"convert", "json", "msgpack", "toml", "yaml"}


def test_a_call_that_shows_msgspec_a_type_is_known() -> None:
    shown = ("convert(v, K)", "json.Decoder(K)", "json.decode(d, type=K)", "msgpack.decode(d, type=K)")
    for text in shown:
        [call] = [n for n in ast.walk(ast.parse(f"msgspec.{text}")) if isinstance(n, ast.Call)]
        assert shows_a_type(call)
    [plain] = [n for n in ast.walk(ast.parse("msgspec.json.decode(d)")) if isinstance(n, ast.Call)]
    assert not shows_a_type(plain)


@every_row("module", MODULES, ids=str)
def test_a_module_is_small(module: Path) -> None:
    assert len((SRC / module).read_text("utf-8").splitlines()) < MAX_LINES


@every_row("module", MODULES, ids=str)
def test_a_module_is_named_after_what_it_is(module: Path) -> None:
    assert not SHAPELESS_NAMES & {part.removesuffix(".py") for part in module.parts}


@every_row("module", [m for m in MODULES if m.name == "__init__.py"], ids=str)
def test_a_package_does_nothing_when_imported(module: Path) -> None:
    doing = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
    lazily = [node for node in tree(module).body if not isinstance(node, doing)]
    for node in lazily:
        if isinstance(node, ast.If):
            assert isinstance(node.test, ast.Name)
            assert node.test.id == "TYPE_CHECKING"
        else:
            assert isinstance(node, ast.FunctionDef)
            assert node.name in ("__getattr__", "__dir__")
    at_once = [node for node in tree(module).body if node not in lazily]
    assert not [call for node in at_once for call in ast.walk(node) if isinstance(call, ast.Call)]
