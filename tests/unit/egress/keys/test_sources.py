"""Where keys are taken from, and by which programs."""

import os
from pathlib import Path

import pytest

from holdfast.egress.keys import sources
from holdfast.egress.keys.sources import find_file, read_key
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import parse_secret
from tests.support.rows import every_row

KEY = "sk-proj-kV9wX2yZ4aB6cD8eF1gH"


def install(folder: Path, name: str, script: str) -> str:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def take(source: str, path: str, *outside: str) -> str:
    return read_key(parse_secret(f"API_KEY={source}@api.test"), {"PATH": path}, outside)


def test_a_key_is_a_variable_or_the_content_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n", "utf-8")
    assert read_key(parse_secret("API_KEY@api.test"), {"API_KEY": KEY}) == KEY
    wish = parse_secret(f"API_KEY=file:{tmp_path}/key@api.test")
    assert (read_key(wish, {}), find_file(wish)) == (KEY, f"{tmp_path}/key")
    assert find_file(parse_secret("API_KEY@api.test")) is None


def test_pass_is_asked_for_its_entry(tmp_path: Path) -> None:
    said = f'echo "$0 $#" >&2; test "$1 $2 $3" = "show -- api/open ai" && printf "{KEY}\\nuser: me\\n"'
    path = install(tmp_path / "bin", "pass", said)
    assert take("pass:api/open ai", path) == KEY


def test_secret_tool_is_asked_for_its_attributes(tmp_path: Path) -> None:
    said = f'test "$*" = "lookup service api account me" && printf {KEY}'
    path = install(tmp_path / "bin", "secret-tool", said)
    assert take("secret-tool:service api account me", path) == KEY


def test_a_program_that_a_command_could_have_made_is_not_run(tmp_path: Path) -> None:
    """By its name on the search path, by its path, or through a link."""
    ran = tmp_path / "ran"
    workspace = tmp_path / "ws"
    path = install(workspace, "pass", f"touch {ran}; echo {KEY}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pass").symlink_to(workspace / "pass")
    only = f"{tmp_path}/bin:{workspace}:ws:."
    for source, search in (
        ("pass:x", only),
        (f"cmd:{workspace}/pass", path),
        ("cmd:./pass", path),
        ("cmd:ws/pass", path),
    ):
        with pytest.raises(UsageError, match="not installed, or only where a command could have put it"):
            take(source, search, str(workspace))
    assert not ran.exists()
    assert take("pass:x", only, str(tmp_path / "elsewhere")) == KEY


@every_row(
    ("script", "why"),
    [(f"echo {KEY}; exit 3", "failed with 3"), (f"echo {KEY}; exec sleep 60", "did not end")],
    ids=str,
)
def test_what_goes_wrong_is_said_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(sources, "PROGRAM_S", 0.3)
    path = install(tmp_path / "bin", "pass", script)
    with pytest.raises(UsageError, match=why) as caught:
        take("pass:x", path)
    assert KEY not in f"{caught.value} {caught.value.remedy}"
