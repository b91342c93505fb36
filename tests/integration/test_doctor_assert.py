"""`holdfast doctor assert` with our own sandbox, and with programs that only claim to be Codex."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from holdfast.agentconfig import clients
from holdfast.doctor.assertion import probe, routes, witness
from holdfast.doctor.assertion.claims import ClaimAttempt
from holdfast.doctor.assertion.routes import playing
from holdfast.errors import OperationFailed
from tests.support import assertion
from tests.support.assertion import TIMEOUT_S, Bench
from tests.support.patience import patient

MODES = ("confined", "read-only", "workspace-write", "network", "full-access")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with assertion.bench() as made:
        yield made


@pytest.fixture
def url() -> Iterator[str]:
    """Somebody who answers on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


# --- our own sandbox


@pytest.mark.parametrize("mode", MODES)
def test_our_own_sandbox_keeps_every_mode(bench: Bench, mode: str) -> None:
    done = bench.run("--expect", mode)
    assert (done.code, done.tree["verdict"]) == (0, "pass"), done
    assert (done.tree["schemaVersion"], done.tree["agent"], done.tree["binary"]) == (1, "holdfast", None)
    assert set(done.tree) == {
        *("schemaVersion", "verdict", "agent", "binary", "version", "runs", "claims", "fingerprints"),
    }
    assert {"claim", "wanted", "got", "evidence"} <= set(done.tree["claims"][0])
    assert list(bench.workspace.iterdir()) == []


def test_what_it_worked_in_is_gone(bench: Bench) -> None:
    told = json.dumps(bench.run().tree)
    [place] = set(re.findall(rf"/[\w/]+/{witness.PREFIX}\w+", told))
    assert not os.path.exists(place)


def test_claims_that_hold_and_claims_that_do_not(bench: Bench, url: str) -> None:
    other, third = bench.base / "other", bench.base / "third"
    other.mkdir()
    third.mkdir()
    good = bench.run("--write", other, "--deny-write", third, "--network", url, "--status", "302")
    assert (good.code, good.failing()) == (0, []), good
    bad = bench.run("--deny-write", bench.workspace, "--write", bench.workspace / "x", "--deny-network", url)
    assert (bad.code, bad.failing()) == (1, [f"writes {bench.workspace}"]), bad
    assert (
        bench.run(
            "--network", url, "--status", "3xx", "--deny-network", url.replace("127.0.0.1", "localhost")
        ).code
        == 1
    )
    assert not [path for path in bench.base.rglob("*") if path.is_file()]


def test_an_answer_that_is_an_error_is_not_what_was_claimed(bench: Bench, url: str) -> None:
    done = bench.run("--network", url)
    assert (done.code, done.failing()) == (1, [f"reaches {url}"]), done
    [claim] = [each for each in done.tree["claims"] if each["claim"].startswith("reaches")]
    assert "it answers with status 302, wanted 2xx" in claim["evidence"]
    assert "--status CODE" in claim["remedy"]


def test_a_denial_without_a_control_is_not_judged(bench: Bench) -> None:
    done = bench.run("--deny-write", bench.base / "missing" / "file", "--deny-network", "tcp://127.0.0.1:1")
    assert (done.code, done.tree["verdict"]) == (2, "unknown")
    assert len(done.failing()) == 2
    assert all(each["remedy"] for each in done.tree["claims"] if each["got"] == "unknown")


def test_an_existing_file_is_tried_without_a_change(bench: Bench) -> None:
    inside, outside = bench.workspace / "file", bench.base / "file"
    for path in (inside, outside):
        path.write_text("content")
        os.utime(path, ns=(1, 1))
    assert bench.run("--write", inside, "--deny-write", outside).code == 0
    for path in (inside, outside):
        assert path.read_text() == "content"
        assert path.stat().st_mtime_ns == 1


def test_a_profile_is_asserted_as_it_is(bench: Bench) -> None:
    profile = bench.base / "p.toml"
    profile.write_text('filesystem = {":root" = "read"}')
    done = bench.run("--profile", profile, "--write", bench.workspace)
    assert (done.code, done.failing()) == (1, [f"writes {bench.workspace}"]), done


def test_secrets_are_not_told_and_not_in_the_sandbox(bench: Bench) -> None:
    done = bench.run(MY_TOKEN="hunter2")
    assert "hunter2" not in json.dumps(done.tree) + done.err
    assert done.tree["runs"][0]["facts"]["secretNames"] == []


def test_without_codex_our_own_sandbox_is_meant(bench: Bench) -> None:
    command = [sys.executable, "-m", "holdfast", "doctor", "assert", "--json", "--cwd", str(bench.workspace)]
    done = bench.run(command=command, PATH="/usr/bin:/bin")
    assert (done.code, done.tree["agent"]) == (0, "holdfast")
    asked = bench.run(command=[*command, "--agent", "codex"], PATH="/usr/bin:/bin")
    assert (asked.code, asked.tree) == (2, {})
    assert "npm install" in asked.err


@pytest.mark.parametrize(
    "options",
    [
        ("--network", "https://me:hunter2@a.example/"),
        ("--write", "/x", "--deny-write", "/x"),
        ("--wait", "-1"),
        ("--cwd", "/nowhere"),
    ],
)
def test_what_makes_no_sense_is_not_judged(bench: Bench, options: tuple[str, ...]) -> None:
    done = bench.run(*options)
    assert (done.code, done.tree) == (2, {})
    assert "hunter2" not in done.err


def test_people_get_sentences(bench: Bench) -> None:
    done = subprocess.run(
        bench.command("--deny-write", bench.workspace),
        env=bench.environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("fail: holdfast ")
    assert f"FAIL  writes {bench.workspace}: yes, wanted no [holdfast exec]" in done.stdout
    assert "      try: " in done.stdout


# --- waiting


def test_waiting_ends_when_it_is_repaired(bench: Bench) -> None:
    later = bench.workspace / "later"
    with subprocess.Popen(
        bench.command("--json", "--write", later / "file", "--wait", "60"),
        env=bench.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        try:
            assert waiting.stderr
            assert "not yet: " in waiting.stderr.readline()
            later.mkdir()
            out, _ = waiting.communicate(timeout=TIMEOUT_S)
        finally:
            waiting.kill()
    assert waiting.returncode == 0
    assert json.loads(out)["verdict"] == "pass"


def test_waiting_ends_when_the_time_is_over(bench: Bench) -> None:
    done = bench.run("--deny-write", bench.workspace, "--wait", "0.3")
    assert done.code == 1


# --- programs that are not Codex


def stand_in(bench: Bench, script: str) -> Bench:
    program = bench.base / "codex"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    bench.binary = program
    return bench


# As `python -m holdfast`, with little patience for a program that never answers.
IMPATIENT = """
from holdfast.agentconfig import clients
from holdfast.entry import main
from holdfast.doctor.assertion import witness
clients.CODEX_ANSWER_S = witness.START_S = 1
main()
"""


@pytest.mark.parametrize("script", ["exit 0", "exit 3", "echo nonsense", "echo '{}'; cat >/dev/null"])
def test_a_program_that_says_nothing_sensible_never_passes(bench: Bench, script: str) -> None:
    _, _, _, *words = stand_in(bench, script).command("--json")
    done = bench.run(command=[sys.executable, "-c", IMPATIENT, *words])
    assert done.code == 1
    assert "runs a command" in done.failing()
    assert done.status("codex exec") == "skipped"


def test_its_last_words_are_evidence(bench: Bench) -> None:
    done = stand_in(bench, "echo 'Error: bwrap: setting up uid map: Permission denied' >&2; exit 1").run()
    assert done.causes() == ["uidmap.eacces"]
    assert done.tree["fingerprints"][0]["remedy"]


def test_a_home_that_is_not_there_is_named_and_repaired_by_what_is_advised(bench: Bench) -> None:
    bench.home.rmdir()
    done = stand_in(bench, "exit 0").run()
    assert (done.code, done.failing()) == (1, [f"keeps its state in {bench.home}"])
    [remedy] = [each["remedy"] for each in done.tree["claims"]]
    subprocess.run(["sh", "-c", remedy], check=True, timeout=TIMEOUT_S)
    assert bench.home.is_dir()


def test_whoever_ends_it_leaves_nothing(bench: Bench) -> None:
    told = bench.base / "told"
    stand_in(bench, f'case $1 in app-server) echo "$CODEX_HOME $$" > {told}; exec sleep 600;; esac')
    with subprocess.Popen(bench.command(), env=bench.environ()) as running:
        until = time.monotonic() + TIMEOUT_S
        while not (told.exists() and told.read_text().endswith("\n")):
            assert time.monotonic() < until
            time.sleep(0.02)
        running.terminate()
        assert running.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    home, pid = told.read_text().split()
    assert not Path(home).parent.exists()
    _until_gone(int(pid))


def test_one_that_hangs_is_not_judged_and_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "RUN_S", 0.5)
    monkeypatch.setattr(witness, "START_S", 0)
    stand_in(bench, "sleep 600")
    assert bench.binary
    launch = routes.CodexLaunch(bench.binary, bench.home, bench.workspace)
    questions = witness.Questions((), witness.LoopListener("", ""))
    ran = routes.codex_exec(launch, bench.home, questions, {}, bench.environ())
    assert (ran.ended, ran.exit_code) == (False, None)


# --- the parts


def test_a_program_that_never_ends_is_ended_with_its_children(tmp_path: Path) -> None:
    script = "sleep 600 & echo $!; wait"
    ended = routes.run_program(["sh", "-c", script], cwd=tmp_path, environ=os.environ, seconds=0.5)
    assert ended.code is None
    _until_gone(int(ended.out))


def _run_program(place: Path) -> None:
    routes.run_program(["sleep", "600"], cwd=place, environ=os.environ, seconds=TIMEOUT_S)


def _silent(place: Path) -> Path:
    program = place / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    return program


def _ask_codex(place: Path) -> None:
    clients.read_codex_values(_silent(place), place, place)


def _ask_opencode(place: Path) -> None:
    clients.opencode_config(_silent(place), place, {}, "config")


@pytest.mark.parametrize("start", [_run_program, _ask_codex, _ask_opencode])
def test_a_signal_while_a_program_starts_leaves_nothing(
    start: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            started.append(self.pid)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with pytest.raises(SystemExit):
            start(tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    _until_gone(started[0])


def _until_gone(pid: int) -> None:
    """Whoever is killed has a name until somebody has taken note."""
    until = time.monotonic() + patient(30)
    while _runs(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_flood_is_read_and_cut(tmp_path: Path) -> None:
    script = f"head -c {3 * routes.MAX_OUTPUT} /dev/zero | tr '\\0' x; echo over >&2; exit 4"
    ended = routes.run_program(["sh", "-c", script], cwd=tmp_path, environ=os.environ, seconds=TIMEOUT_S)
    assert (ended.code, ended.err, len(ended.out)) == (4, "over\n", routes.MAX_OUTPUT)


def test_the_stub_answers_on_loopback_and_only_who_knows_its_token() -> None:
    with playing("true") as stub:
        assert stub.url.startswith("http://127.0.0.1:")
        host = stub.url.removeprefix("http://").removesuffix("/v1")

        def post(token: str, path: str = "/v1/responses", body: bytes = b'{"input": []}') -> int:
            link = http.client.HTTPConnection(host, timeout=patient(30))
            try:
                link.request("POST", path, body, {"authorization": f"Bearer {token}"})
                return link.getresponse().status
            finally:
                link.close()

        assert post("guess") == 401
        assert stub.turns == 0
        assert post(stub.token, "/v1/other") == 404
        assert post(stub.token, body=b"{") == 400
        assert post(stub.token) == 200
        assert stub.turns == 1


def test_the_program_inside_ends_by_itself_whoever_else_was_killed() -> None:
    questions = {"nonce": "x", "name": "x", "seconds": 1, "writes": [], "reaches": []}
    source = f"{Path(probe.__file__).read_text()}\nmain(sys.argv[1])\nwhile True: signal.pause()\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, json.dumps(questions)], timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == -signal.SIGALRM


def test_a_word_of_somebody_else_is_not_ours() -> None:
    with witness.listening(needed=True) as ours, witness.listening(needed=True) as other:
        for listener, ok in ((ours, True), (other, False)):
            worked, error, said = probe.reach(listener.url)
            assert ours.heard(ClaimAttempt(worked, error, said)).ok is ok


def test_a_place_to_work_in_is_never_one_that_sandboxes_open(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    for cwd, temporary in (("/dev/shm", "/var/tmp"), ("/", "/tmp")):
        with (
            pytest.raises(OperationFailed),
            witness.workplace(Path(cwd), {**environ, "TMPDIR": temporary}) as place,
        ):
            pytest.fail(f"{place} is in a place that is open anyway")
