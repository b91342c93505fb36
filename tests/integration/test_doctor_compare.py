"""`holdfast doctor compare`: the real command, plain and confined."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command
from holdfast.doctor.compare import circumstances
from holdfast.doctor.compare.compare import Landmarks, Side, capture
from holdfast.doctor.compare.equivalence import CONSEQUENCES
from tests.support import identity
from tests.support.exec_command import Done, Place, gone, place
from tests.support.root_only import IDENTITIES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]
SECRET = "hunter2-correct-horse"


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@pytest.fixture
def own() -> Iterator[Place]:
    with place(identity.SELF) as made:
        yield made


def compare(where: Place, *args: str, **env: str) -> Done:
    return where.holdfast("doctor", "compare", *args, env=env)


def tree(where: Place, *args: str, **env: str) -> Any:
    return json.loads(compare(where, "--json", *args, **env).out)


def rows(found: Any) -> dict[tuple[str, str], Any]:
    return {(row["group"], row["field"]): row for row in found["rows"]}


# --- what differs


def test_a_command_that_does_not_care_behaves_alike_in_other_surroundings(anyone: Place) -> None:
    done = compare(anyone, "--json", "--", "echo", "hello")
    assert done.code == 1, done.err
    found = json.loads(done.out)
    assert (found["hostEquivalent"], found["behavedAlike"]) == ("no", "yes")
    seen = rows(found)
    assert seen["files", str(anyone.workspace)]["verdict"] == "same"
    assert seen["files", str(anyone.workspace / ".git")]["verdict"] == "weaker"
    assert seen["files", str(anyone.top)]["verdict"] == "weaker"
    assert seen["network", "loopback of the host"]["worker"] == "no"
    assert seen["network", "own loopback"]["verdict"] == "same"
    assert seen["confinement", "no new privileges"]["verdict"] == "different"
    assert seen["identity", "user"]["verdict"] == "same"
    assert seen["process", "working directory"]["worker"] == str(anyone.workspace)
    assert found["enforcement"]["backend"] == "namespaces"


def test_without_limits_everything_is_equivalent(anyone: Place) -> None:
    done = compare(anyone, "--full-access", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert done.code == 0, done.out
    assert done.out.startswith("host-equivalent: yes; the command behaved the same")
    assert "runs twice" in done.err


def test_what_the_sandbox_denies_shows_in_exit_code_and_first_line(own: Place) -> None:
    script = f"echo one; echo two >&2; echo x > {own.outside}/file"
    done = compare(own, "--", "sh", "-c", script)
    assert done.code == 1
    assert "the command behaved differently" in done.out
    seen = rows(tree(own, "--", "sh", "-c", script))
    assert (seen["outcome", "exit code"]["host"], seen["outcome", "exit code"]["worker"]) == ("0", "2")
    assert seen["outcome", "stdout"]["verdict"] == "same"
    assert "Read-only file system" in seen["outcome", "stderr"]["worker"]
    assert seen["outcome", "stderr"]["worker"].startswith("line 2: ")


def test_what_an_option_allows_makes_no_difference_any_more(own: Place) -> None:
    seen = rows(tree(own, "--allow-write", str(own.outside), "--", "true"))
    assert seen["files", str(own.outside)]["verdict"] == "same"
    seen = rows(tree(own, "--network", "on", "--", "true"))
    assert seen["network", "loopback of the host"]["verdict"] == "same"


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_other_backends_are_observed_from_inside_too(own: Place, backend: str) -> None:
    found = tree(own, "--backend", backend, "--degraded", "--", "true")
    seen = rows(found)
    assert found["enforcement"]["backend"] == backend
    assert seen["files", str(own.top)]["verdict"] == "weaker"
    assert seen["confinement", "sees the processes outside"]["worker"] == "no"
    assert (seen["confinement", "pid namespace"]["verdict"] == "same") is (backend == "landlock")


def test_it_runs_twice_and_plain_first(own: Place) -> None:
    compare(own, "--", "sh", "-c", "grep Seccomp: /proc/self/status >> log")
    assert (own.workspace / "log").read_text().split() == ["Seccomp:", "0", "Seccomp:", "2"]


def test_nothing_of_the_probes_is_left(own: Place) -> None:
    compare(own, "--", "true")
    assert sorted(path.name for path in own.top.rglob("*")) == [".git", "outside", "ws"]


# --- secrets


def test_no_value_of_an_unknown_variable_is_shown(own: Place) -> None:
    env = {"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": SECRET, "MY_PASSWORD": SECRET}
    # The second field differs between the sides, so this is the line that is shown.
    script = 'echo "$MY_PASSWORD $(cat /proc/sys/kernel/random/uuid)"'
    for form in ((), ("--json",)):
        done = compare(own, *form, "--", "sh", "-c", script, **env)
        assert SECRET not in done.out + done.err
        assert "***" in done.out
    row = rows(tree(own, "--", "true", **env))["environment", "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN"]
    assert (row["host"], row["worker"], row["verdict"]) == ("set", "not set", "weaker")


# --- bounds


def test_a_command_that_does_not_end_is_ended_and_nothing_is_told_of_it(own: Place) -> None:
    name = f"8{uuid.uuid4().int % 10**7:07}"
    script = f"setsid sleep {name} & exec sleep {name}"
    done = compare(own, "--full-access", "--timeout", "0.5", "--", "sh", "-c", script)
    assert done.code == 2, done.out
    assert "did not end in its time" in done.out
    assert gone(name)


def test_endless_output_is_bounded_by_the_time(own: Place) -> None:
    assert compare(own, "--timeout", "0.5", "--", "yes").code == 1


async def test_what_is_captured_is_bounded_but_counted_to_its_end(tmp_path: Path) -> None:
    launcher = LauncherClient()
    try:
        done = await capture(
            launcher,
            Command(("sh", "-c", "head -c 300000 /dev/zero"), "sh", str(tmp_path), dict(os.environ)),
            owner=1,
            confinement=None,
            limit_s=10,
            keep=1000,
        )
    finally:
        await launcher.aclose()
    assert done.end is not None
    assert (len(done.stdout.kept), done.stdout.size, done.stderr.size) == (1000, 300_000, 0)


async def test_what_does_not_end_is_gone_when_its_time_is_over(tmp_path: Path) -> None:
    name = f"8{uuid.uuid4().int % 10**7:07}"
    launcher = LauncherClient()
    try:
        command = Command(("sleep", name), "sleep", str(tmp_path), dict(os.environ))
        done = await capture(launcher, command, owner=1, confinement=None, limit_s=0.2, keep=1)
        assert done.end is None
        assert gone(name)
    finally:
        await launcher.aclose()


# --- what cannot be compared


def test_what_cannot_be_enforced_is_not_run_at_all(own: Place) -> None:
    done = compare(own, "--backend", "landlock", "--loopback-port", "8080", "--", "touch", "ran")
    assert done.code == 2
    assert "landlock" in done.err
    assert not (own.workspace / "ran").exists()


@pytest.mark.parametrize(
    "args", [(), ("--",), ("--read-only", "--full-access", "--", "true"), ("--nonsense",)]
)
def test_bad_input_is_exit_code_2(own: Place, args: tuple[str, ...]) -> None:
    done = compare(own, *args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("holdfast: ")


def test_a_command_that_does_not_exist_is_missed_alike_on_both_sides(own: Place) -> None:
    found = tree(own, "--", "no-such-program")
    assert found["behavedAlike"] == "yes"
    assert rows(found)["outcome", "exit code"]["host"].startswith("127 ")


def test_where_no_probe_can_run_the_answer_is_open_or_no_but_never_yes(own: Place) -> None:
    profile = own.top / "profile.toml"
    profile.write_text('[filesystem]\n":workspace" = "write"\n"/nowhere" = "read"\n')
    found = tree(own, "--profile", str(profile), "--", "true")
    assert found["hostEquivalent"] in ("unknown", "no")
    assert rows(found)["network", "all"]["verdict"] == "unknown"


# --- the probe


async def test_the_plain_side_is_what_a_child_of_ours_sees(tmp_path: Path) -> None:
    launcher = LauncherClient()
    try:
        with Landmarks() as landmarks:
            question = landmarks.question([str(tmp_path)], os.environ)
            ours = await Side(launcher, None, str(tmp_path), dict(os.environ)).look(question)
            program = f"{Path(circumstances.__file__).read_text()}\nmain({question!r})\n"
            direct = subprocess.run(  # noqa: ASYNC221 - the listeners need nobody to accept
                [sys.executable, "-I", "-S", "-B", "-c", program],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                start_new_session=True,
                check=True,
            )
    finally:
        await launcher.aclose()
    beside = json.loads(direct.stdout.decode().rpartition(circumstances.MARK)[2])
    for group, fields in beside.items():
        for field, value in fields.items():
            seen = ours[group][field]
            assert (list(seen) if isinstance(seen, tuple) else seen) == value, (group, field)


async def test_every_consequence_is_about_something_that_is_looked_at(tmp_path: Path) -> None:
    launcher = LauncherClient()
    try:
        with Landmarks() as landmarks:
            question = landmarks.question([str(tmp_path)], os.environ)
            seen = await Side(launcher, None, str(tmp_path), dict(os.environ)).look(question)
    finally:
        await launcher.aclose()
    fields = {(group, field) for group, named in seen.items() for field in named}
    assert {key for key in CONSEQUENCES if key[1] and key[0] != "environment"} <= fields
