import os
import sys
from pathlib import Path

import pytest

from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.plan.planner import Crossing, FoundKind, Sight
from holdfast.sandbox.plan.prerequisites import (
    Refused,
    Uncovered,
    given_by_caller,
    of_ourselves,
    of_program,
    uncover,
)
from holdfast.sandbox.policy.policy import Access

PACKAGE = Path(prerequisites.__file__).resolve().parents[3]


def made(place: Path, text: str = "", *, mode: int = 0o755) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")
    place.chmod(mode)
    return str(place)


def virtual(place: Path, base: Path) -> Path:
    """A virtual environment with one editable package of each kind."""
    made(place / "pyvenv.cfg", f"include-system-site-packages = false\nhome = {base / 'bin'}\n")
    site = place / "lib/python3.11/site-packages"
    made(site / "a.pth", f"import sys\n{place.parent / 'sources'}\nrelative\n")
    mapping = {"tool": str(place.parent / "mapped" / "tool")}
    made(site / "__editable___tool_finder.py", f"MAPPING: dict[str, str] = {mapping!r}\nNOTHING: int\n")
    made(site / "__editable___broken_finder.py", "MAPPING: (")
    (place.parent / "sources").mkdir()
    (place.parent / "mapped" / "tool").mkdir(parents=True)
    made(base / "lib/python3.11/os.py")
    (place / "bin").mkdir()
    os.symlink(made(base / "bin/python3.11"), place / "bin/python")
    return place / "bin" / "python"


def test_we_need_our_interpreter_its_installation_and_this_package() -> None:
    found = of_ourselves()
    assert {sys.executable, sys.prefix, sys.base_prefix} <= set(found)
    assert any(PACKAGE.is_relative_to(os.path.realpath(path)) for path in found)
    assert all(os.path.exists(path) for path in found)


def test_a_directory_from_which_only_others_are_loaded_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).resolve().parents[4])  # of the tests, which are loaded
    monkeypatch.syspath_prepend(root)
    of_ourselves.cache_clear()
    assert root not in of_ourselves()


def test_a_directory_that_only_our_caller_named_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/nowhere", str(PACKAGE), *(p for p in sys.path if p != str(PACKAGE))])
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE}{os.pathsep}")
    given_by_caller.cache_clear()
    try:
        site = PACKAGE.name in ("site-packages", "dist-packages")
        assert given_by_caller() == (() if site else (str(PACKAGE),))
    finally:
        given_by_caller.cache_clear()


def test_a_program_of_npm_needs_what_lies_beside_its_package_and_its_interpreter(tmp_path: Path) -> None:
    script = made(tmp_path / "lib/node_modules/@a/b/bin/cli.js", "#!/usr/bin/env -S A=1 node --flag\n")
    node = made(tmp_path / "node/bin/node")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "cli"
    link.symlink_to(script)
    found = of_program(str(link), str(tmp_path / "node/bin"))
    assert found == (str(link), str(tmp_path / "lib/node_modules"), node)


def test_a_program_of_a_virtual_environment_needs_all_of_that_and_the_installation(tmp_path: Path) -> None:
    base = tmp_path / "base"
    python = virtual(tmp_path / "venv", base)
    script = made(tmp_path / "venv/bin/tool", f"#!{python}\n")
    sources = (str(tmp_path / "sources"), str(tmp_path / "mapped" / "tool"))
    wanted = {script, str(tmp_path / "venv"), str(base), str(base / "bin"), str(python), *sources}
    assert set(of_program(script, "")) == wanted


@pytest.mark.parametrize("head", ["", "#!\n", "#!relative\n", "#!/usr/bin/env\n", "#!/usr/bin/env nothing\n"])
def test_a_plain_file_needs_itself(tmp_path: Path, head: str) -> None:
    tool = made(tmp_path / "tool", head)
    assert of_program(tool, str(tmp_path)) == (tool,)


def test_what_is_not_there_or_calls_itself_ends(tmp_path: Path) -> None:
    assert of_program(str(tmp_path / "nothing"), "") == ()
    tool = made(tmp_path / "tool", f"#!{tmp_path / 'tool'}\n")
    assert of_program(tool, "") == (tool,)


TABLE = {"/": Access.READ, "/tmp": Access.DENY, "/srv/work": Access.WRITE}
AROUND = "/srv/work"


def folder(path: str, *links: tuple[str, str]) -> Sight:
    return Sight(path, FoundKind.DIRECTORY, tuple(Crossing(*link) for link in links))


def found(*paths: str, table: dict[str, Access] = TABLE, around: str = AROUND, **sights: Sight) -> Uncovered:
    return uncover({path: folder(path) for path in paths} | sights, table, around=around)


def test_what_is_needed_below_something_hidden_is_granted_and_nothing_else() -> None:
    assert found("/tmp/x/.venv", "/tmp/x/src", "/usr/lib") == Uncovered(("/tmp/x/.venv", "/tmp/x/src"), ())


def test_a_grant_inside_another_is_none_of_its_own() -> None:
    assert found("/tmp/x/.venv", "/tmp/x/.venv/lib").grants == ("/tmp/x/.venv",)


def test_what_is_not_there_needs_no_grant() -> None:
    gone = Sight("/tmp/x", FoundKind.MISSING, (Crossing("/tmp/link", "x"),))
    assert uncover({"/tmp/link": gone}, TABLE, around=AROUND) == Uncovered((), ())


def test_what_is_hidden_itself_is_refused_with_the_rule() -> None:
    assert found("/tmp") == Uncovered((), (Refused("/tmp", "/tmp"),))
    assert found("/tmp").refused[0].words() == "/tmp cannot be read: it is denied"


def test_what_holds_something_hidden_is_refused_only_where_it_is_hidden_itself() -> None:
    nested = {**TABLE, "/tmp/x": Access.READ, "/tmp/x/home": Access.DENY}
    assert found("/tmp/x", "/tmp/x/home/py", table=nested).grants == ("/tmp/x/home/py",)
    assert found("/opt", table={"/": Access.DENY}) == Uncovered(("/opt",), ())
    assert found("/", table={"/": Access.DENY}).refused == (Refused("/", "/"),)


def test_what_would_show_the_neighbours_of_the_workspace_is_refused() -> None:
    table = {**TABLE, "/tmp/all/works/one": Access.WRITE}
    around = "/tmp/all/works/one"
    assert found("/tmp/all", table=table, around=around).refused == (Refused("/tmp/all", "/tmp"),)
    assert found("/tmp/all/py", table=table, around=around).grants == ("/tmp/all/py",)
    assert found("/tmp/all/works/one/py", table=table, around=around) == Uncovered((), ())
    hidden = {**table, "/tmp/all/works": Access.DENY}  # by a rule of their own, which still holds
    assert found("/tmp/all", table=hidden, around=around).grants == ("/tmp/all",)


def test_a_link_among_programs_is_shown_with_them() -> None:
    tool = folder("/opt/tool", ("/tmp/npm/bin/tool", "/opt/tool"))
    assert uncover({"t": tool}, TABLE, around=AROUND) == Uncovered(("/tmp/npm/bin",), ())


def test_a_link_that_another_grant_shows_needs_none() -> None:
    needed = {"v": folder("/tmp/x/.venv"), "p": folder("/opt/py", ("/tmp/x/.venv/lib64", "/opt/py"))}
    assert uncover(needed, TABLE, around=AROUND) == Uncovered(("/tmp/x/.venv",), ())


def test_a_link_that_no_narrow_grant_shows_is_refused_by_its_name() -> None:
    tool = folder("/opt/tool", ("/tmp/tool", "/opt/tool"))
    found = uncover({"/tmp/tool": tool}, TABLE, around=AROUND)
    assert found == Uncovered((), (Refused("/tmp/tool", "/tmp"),))
    assert found.refused[0].words() == "/tmp/tool cannot be read: inside /tmp, which is denied"


def test_a_link_beside_more_than_programs_is_refused() -> None:
    tool = folder("/opt/tool", ("/tmp/x/tool", "/opt/tool"))
    assert uncover({"t": tool}, TABLE, around=AROUND) == Uncovered((), (Refused("/tmp/x/tool", "/tmp"),))


def test_a_directory_of_programs_that_is_hidden_itself_stays_so() -> None:
    tool = folder("/opt/tool", ("/srv/bin/tool", "/opt/tool"))
    table = {"/": Access.READ, "/srv/bin": Access.DENY}
    assert uncover({"t": tool}, table, around="/w/x").refused == (Refused("/srv/bin/tool", "/srv/bin"),)


def test_without_any_rule_everything_is_hidden() -> None:
    assert found("/opt/py", table={}) == Uncovered(("/opt/py",), ())


def test_nothing_below_a_secret_is_shown_for_the_sake_of_a_program() -> None:
    """A link, or a line in a file that the program is found by, may have been written by a worker."""
    table = {**TABLE, "/home/me/.gnupg": Access.DENY}
    needed = {
        "p": folder("/home/me/.gnupg/private-keys-v1.d"),
        "l": folder("/opt/tool", ("/home/me/.gnupg/bin/tool", "/opt/tool")),
    }
    found = uncover(needed, table, around=AROUND, never={"/home/me/.gnupg"})
    assert found.grants == ()
    assert {one.hidden for one in found.refused} == {"/home/me/.gnupg"}
