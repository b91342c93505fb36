"""`holdfast doctor` on the machine that runs the tests."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patient

TIMEOUT_S = patient(60)


def doctor(*arguments: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", *arguments],
        input=text,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_one_screen_names_the_backend_that_is_used() -> None:
    done = doctor(NO_COLOR="1")
    assert done.returncode in (0, 1), done.stderr
    assert "is the one that is used" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_tree_has_a_stable_shape_and_agrees_with_the_exit_code() -> None:
    done = doctor("--json")
    tree = json.loads(done.stdout)
    assert tree["schemaVersion"] == 1
    severities = {finding["severity"] for finding in tree["findings"]}
    assert severities <= {"ok", "note", "degraded", "broken"}
    assert done.returncode == (2 if "broken" in severities else 1 if "degraded" in severities else 0)
    assert {"host.kernel", "sandbox.landlock"} <= {finding["id"] for finding in tree["findings"]}


def test_a_host_without_user_namespaces_is_told_why_and_what_else_is_used() -> None:
    command = [sys.executable, "-m", "holdfast", "doctor", "--json"]
    script = (
        'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$@"'
    )
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    findings = {finding["id"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["sandbox.user_namespace"]["severity"] == "degraded"
    assert "ENOSPC" in findings["sandbox.user_namespace"]["evidence"]
    assert findings["sandbox.user_namespace"]["remedy"]
    assert done.returncode == 1


def test_agents_on_the_path_are_found_with_version_and_state(tmp_path: Path) -> None:
    home, programs = tmp_path / "home", tmp_path / "bin"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "auth.json").write_text("SECRET-TOKEN")
    programs.mkdir()
    program = programs / "codex"
    program.write_text("#!/bin/sh\necho codex-cli 9.8.7\n")
    program.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    done = doctor("--json", PATH=path, HOME=str(home), CODEX_HOME=str(home / ".codex"), OPENAI_API_KEY="")
    [codex] = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "agent.codex"]
    assert codex["title"] == "codex 9.8.7, logged in"
    assert "SECRET-TOKEN" not in done.stdout + done.stderr


def test_an_agent_that_never_answers_does_not_hold_up_the_doctor(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    done = doctor("--json", PATH=f"{tmp_path}:{os.environ['PATH']}")
    [claude] = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "agent.claude"]
    assert claude["severity"] == "note"


def test_explain_reads_a_file_or_standard_input(tmp_path: Path) -> None:
    text = "bwrap: Unknown option --argv0\n"
    log = tmp_path / "log"
    log.write_text(text)
    for done in (
        doctor("explain", str(log)),
        doctor("explain", text=text),
        doctor("explain", "-", text=text),
    ):
        assert done.returncode == 0
        assert "bwrap.option" in done.stdout
    assert (
        json.loads(doctor("explain", "--json", str(log)).stdout)["explanations"][0]["fingerprint"]
        == "bwrap.option"
    )


def test_explain_says_when_it_knows_nothing() -> None:
    done = doctor("explain", text="nothing special")
    assert done.returncode == 1
    assert "holdfast doctor" in done.stdout
    assert json.loads(doctor("explain", "--json", text="nothing special").stdout)["next"]


@pytest.mark.parametrize(("name", "status"), [("missing", 3), ("folder", 71)])
def test_explain_says_why_it_cannot_read_a_file(tmp_path: Path, name: str, status: int) -> None:
    (tmp_path / "folder").mkdir()
    done = doctor("explain", str(tmp_path / name))
    assert done.returncode == status
    assert str(tmp_path / name) in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_reads_a_log_larger_than_its_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(1 << 29)  # a hole: reads as zeros and takes no space
        file.seek(1 << 28)
        file.write(b"\nbwrap: Unknown option --argv0\n")
        file.seek(0, os.SEEK_END)
        file.write(b"\xff\xfe\x00\x80junk\nbwrap: setting up uid map: Permission denied\n")
    limited = (
        f"ulimit -v {400 * 1024}; exec {shlex.quote(sys.executable)} -m holdfast doctor explain --json {log}"
    )
    done = subprocess.run(
        ["sh", "-c", limited], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["explanations"]
    assert [one["fingerprint"] for one in found] == ["uidmap.eacces", "bwrap.option"]


def test_explain_repeats_no_secret_and_commands_no_terminal() -> None:
    text = "curl -H 'Authorization: Bearer hunter2hunter2': Could not resolve host: a \x1b]0;x\x07\x9b31m\n"
    for arguments in (("explain",), ("explain", "--json")):
        done = doctor(*arguments, text=text)
        assert "net.dns" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr
        assert done.stdout.replace("\n", "").isprintable()


def test_explain_tries_here_what_the_text_is_about() -> None:
    text = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_* exceeded (ENOSPC)"
    [there] = json.loads(doctor("explain", "--json", text=text).stdout)["explanations"]
    [here] = json.loads(doctor("explain", "--json", "--here", text=text).stdout)["explanations"]
    assert there["here"] is None
    assert "user namespace worked here" in here["here"]
    limited = (
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all"
    )
    command = f"{limited} {shlex.quote(sys.executable)} -m holdfast doctor explain --here"
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", command],
        input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "here: confirmed, user namespace is refused here (userns: ENOSPC)" in done.stdout
