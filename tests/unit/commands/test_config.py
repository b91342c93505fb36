"""`holdfast config`: what a check ends with."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.agentconfig import order, ownfile
from holdfast.cli import cli
from holdfast.errors import HoldfastError, InvalidRequest, NotFound


@pytest.mark.parametrize("agent", ["codex", "claude", "opencode"])
@pytest.mark.parametrize(
    ("verb", "error", "code"),
    [("check", InvalidRequest, 78), ("check", NotFound, 3), ("apply", InvalidRequest, 1)],
)
def test_a_check_that_is_refused_is_no_difference(
    agent: str,
    verb: str,
    error: type[HoldfastError],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise error("no")

    for module in (order, ownfile):
        monkeypatch.setattr(module, verb, refuse)
    words = ["config", agent, verb, "--home", str(tmp_path), "--cwd", str(tmp_path)]
    assert CliRunner().invoke(cli, words).exit_code == code
