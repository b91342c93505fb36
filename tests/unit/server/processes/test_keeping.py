"""Keys that a client sends with a process: what is refused, and what the process gets instead."""

import base64
import json
from pathlib import Path

import pytest

from holdfast.confine.starts import Sandbox
from holdfast.errors import UsageError
from holdfast.server.processes.keeping import keep_given, keep_known
from holdfast.wire.processes import SecretKey
from tests.support.rows import every_row

KEY = "sk-proj-kV9wX2yZ4aB6cD8eF1gH"
GIVEN = SecretKey("API_KEY", KEY, ["api.test:443", "http://b.test:80"])


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_environment_has_a_placeholder_and_nothing_else_of_it(temporary: Path) -> None:
    basic = base64.b64encode(f"me:{KEY}".encode()).decode()
    env = {"API_KEY": KEY, "COPY": f"Bearer {KEY}", "OTHER": "1", "GIT": f"Authorization: Basic {basic}"}
    keys = keep_given([GIVEN], ["true"], env)
    hidden = keys.hide(env)
    assert KEY not in json.dumps(hidden)
    assert "GIT" not in hidden
    assert hidden["API_KEY"].startswith("sk-proj-")
    assert (hidden["OTHER"], keys.withheld, "COPY" in hidden) == ("1", ("COPY", "GIT"), False)
    assert hidden["NODE_EXTRA_CA_CERTS"].startswith(str(temporary))
    assert "COPY" in keys.declare(Sandbox()).enforcement.network[-1]
    assert keys.kept.keys[0].targets == {("api.test", 443), ("b.test", 80)}
    assert keys.kept.keys[0].plain == {("b.test", 80)}


@every_row(
    ("given", "argv", "why"),
    [
        ([GIVEN, GIVEN], ["true"], "two keys for one variable"),
        ([GIVEN], ["curl", "-H", f"X: {KEY}"], "the command itself has the key"),
        ([GIVEN], ["curl", "-u", base64.b64encode(KEY.encode()).decode()], "the command itself has the key"),
        ([SecretKey("API_KEY", KEY, [])], ["true"], "for no host"),
        ([SecretKey("API_KEY", KEY, ["*.test"])], ["true"], "not one host"),
        ([SecretKey("A-B", KEY, ["api.test"])], ["true"], "no variable"),
        ([SecretKey("API_KEY", "short", ["api.test"])], ["true"], "cannot be kept outside"),
        ([SecretKey("A", KEY, ["b.test:80"]), GIVEN], ["true"], "with TLS and without"),
    ],
    ids=str,
)
def test_what_cannot_be_kept_outside_is_refused_without_a_trace(
    temporary: Path, given: list[SecretKey], argv: list[str], why: str
) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        keep_given(given, argv, {})
    assert KEY not in f"{caught.value} {caught.value.remedy}"
    assert not list(temporary.iterdir())


def test_a_command_that_has_one_key_is_not_given_the_others(temporary: Path) -> None:
    """Whoever knows one could have all of them, by a command line with that one."""
    token = "ghp_" + "aB3dE6gH9j" * 4
    env = {"OPENAI_API_KEY": KEY, "GH_TOKEN": token}
    keys = keep_known(["sh", "-c", f"echo {KEY}"], env)
    assert keys is not None
    hidden = keys.hide(env)
    assert (hidden["OPENAI_API_KEY"], token in json.dumps(hidden)) == (KEY, False)
    assert hidden["GH_TOKEN"].startswith("ghp_")
    assert keep_known(["sh", "-c", f"echo {KEY} {token}"], env) is None


def test_a_key_is_not_shown_with_its_message() -> None:
    assert KEY not in repr(GIVEN)
    assert KEY not in f"{[GIVEN]}"
