"""The real Codex CLI runs its commands and edits its files through an exec server.

Every test is about what reached the model and what is on disk, and every recording is held to the rules of
the wire. The Codex CLI's own server sits the same examination (`-k theirs`): where it fails, the test asks
for something that is not the protocol.
"""

import base64
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.support import mcp_stub
from tests.support.provider import Item, Provider, call, command, patch, turns, type_in
from tests.support.recorder import Entry, Message, broken_rules
from tests.support.stage import Stage, files_below, write_below

ONE_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="


async def test_a_command_shows_both_streams_its_directory_and_its_exit_code(stage: Stage) -> None:
    script = 'echo "out:$((40+2))"; pwd; echo "err:${#CODEX_THREAD_ID}" >&2; exit 3'
    model, recorder = await stage.play(turns([command("c1", script)]))
    assert model.exit_code("c1") == 3
    assert recorder.output("stdout").decode() == f"out:42\n{stage.workspace}\n"
    assert recorder.output("stderr") == b"err:36\n"
    assert all(text in model.output("c1") for text in ("out:42\n", f"{stage.workspace}\n", "err:36\n"))
    exited = recorder.sent("process/exited", by="server")
    assert [(e.params["exitCode"], e.params["sandboxDenied"]) for e in exited] == [(3, False)]
    assert [answer["sandboxType"] for answer in recorder.answers("process/start")] == ["none"]
    assert len(recorder.sent("process/terminate")) == 1


async def test_standard_input_is_at_its_end_without_a_terminal(stage: Stage) -> None:
    ask = command("c1", 'cat; echo "eof:$?"; test -t 0 || echo no-tty', yield_time_ms=5000)
    model, _ = await stage.play(turns([ask]))
    assert model.exit_code("c1") == 0
    assert "eof:0\nno-tty" in model.output("c1")


async def test_a_terminal_takes_lines_and_answers_on_the_stream_pty(stage: Stage) -> None:
    async def script(model: Provider) -> AsyncIterator[list[Item]]:
        ask = (
            "stty -echo; test -t 0 && test -t 1 && echo IS-TTY; read a; echo 1:$a; read b; echo 2:$b; exit 5"
        )
        yield [command("c1", ask, tty=True, yield_time_ms=300)]
        await stage.printed(b"IS-TTY", stream="pty")
        yield [type_in("c2", model.session("c1"), "alpha\n", yield_time_ms=300)]
        yield [type_in("c3", model.session("c1"), "beta\n")]

    model, recorder = await stage.play(script)
    seen = "".join(model.output(call_id) for call_id in ("c1", "c2", "c3"))
    assert [seen.count(text) for text in ("IS-TTY", "1:alpha", "2:beta")] == [1, 1, 1]
    assert model.exit_code("c3") == 5
    assert [answer["status"] for answer in recorder.answers("process/write")] == ["accepted", "accepted"]
    assert b"2:beta" in recorder.output("pty")
    assert recorder.output("stdout") + recorder.output("stderr") == b""


@pytest.mark.parametrize(("tty", "method"), [(True, "process/write"), (False, "process/signal")])
async def test_ctrl_c_interrupts_the_command(stage: Stage, tty: bool, method: str) -> None:
    async def script(model: Provider) -> AsyncIterator[list[Item]]:
        ask = "trap 'echo GOT-INT; exit 7' INT; echo ready; while :; do sleep 0.05; done"
        yield [command("c1", ask, tty=tty, yield_time_ms=300)]
        await stage.printed(b"ready", stream="pty" if tty else "stdout")
        yield [type_in("c2", model.session("c1"), "\x03")]

    model, recorder = await stage.play(script)
    assert model.exit_code("c2") == 7
    assert "GOT-INT" in model.output("c2")
    assert len(recorder.sent(method)) == 1


async def test_a_background_command_goes_on_beside_another_one(stage: Stage) -> None:
    async def script(model: Provider) -> AsyncIterator[list[Item]]:
        ask = "echo begun; until test -e go; do sleep 0.05; done; echo ended; exit 4"
        yield [command("c1", ask, yield_time_ms=300)]
        await stage.printed(b"begun")
        yield [command("c2", "touch go; echo foreground")]
        yield [type_in("c3", model.session("c1"), "")]

    model, _ = await stage.play(script)
    assert (model.exit_code("c1"), model.exit_code("c2"), model.exit_code("c3")) == (None, 0, 4)
    seen = model.output("c1") + model.output("c3")
    assert (seen.count("begun"), seen.count("ended")) == (1, 1)


async def test_calls_of_one_turn_run_at_the_same_time(stage: Stage) -> None:
    meet = "touch {0}; for i in $(seq 99); do test -e {1} && echo {0}-met && exit; sleep 0.05; done"
    calls = [
        command("c1", meet.format("one", "two"), yield_time_ms=8000),
        command("c2", meet.format("two", "one"), yield_time_ms=8000),
    ]
    model, _ = await stage.play(turns(calls))
    assert "one-met" in model.output("c1")
    assert "two-met" in model.output("c2")


@pytest.mark.parametrize("size", [200_000, 5_000_000])
async def test_every_byte_of_large_output_arrives(stage: Stage, size: int) -> None:
    ask = f'echo BEGIN; head -c {size} /dev/zero | tr "\\0" x | fold -w 100; echo; echo END'
    model, recorder = await stage.play(
        turns([command("c1", ask, yield_time_ms=30000, max_output_tokens=2000)])
    )
    assert model.exit_code("c1") == 0
    assert "BEGIN" in model.output("c1")
    assert "END" in model.output("c1")
    line = b"x" * 100 + b"\n"
    assert recorder.output("stdout") == b"BEGIN\n" + (line * (size // 100))[:-1] + b"\nEND\n"


async def test_bytes_that_are_not_text_arrive_unchanged(stage: Stage) -> None:
    ask = r'printf "\377\376\000\001\200\r\n\303"; sleep 0.2; printf "\251 end"'
    model, recorder = await stage.play(turns([command("c1", ask)]))
    assert recorder.output("stdout") == b"\xff\xfe\x00\x01\x80\r\n\xc3\xa9 end"
    assert "é end" in model.output("c1")


async def test_a_directory_that_is_missing_fails_only_its_call(stage: Stage) -> None:
    gone = command("c1", "pwd", workdir=str(stage.workspace / "gone"))
    model, recorder = await stage.play(turns([gone], [command("c2", "pwd", workdir="/")]))
    assert "exec_command failed" in model.output("c1")
    assert recorder.error_codes("process/start") == [-32603]
    assert model.exit_code("c2") == 0
    assert recorder.output("stdout") == b"/\n"


async def test_a_program_that_is_missing_fails_only_its_call(stage: Stage) -> None:
    def first_program_is_gone(entry: Entry) -> Message:
        # The client only names shells that exist.
        if entry.method == "process/start" and "doomed" in str(entry.params.get("argv")):
            return entry.message | {"params": entry.params | {"argv": ["/nonexistent/program"]}}
        return entry.message

    script = turns([command("c1", "echo doomed")], [command("c2", "echo alive")])
    model, recorder = await stage.play(script, fault=first_program_is_gone)
    assert "exec_command failed" in model.output("c1")
    assert recorder.error_codes("process/start") == [-32603]
    assert model.exit_code("c2") == 0


async def test_the_environment_policy_decides_what_a_command_inherits(stage: Stage) -> None:
    policy = '[shell_environment_policy]\ninherit = "none"\nset = { CHOSEN = "by-policy" }\n'
    ask = command("c1", r'tr "\0" "\n" < /proc/$$/environ | sed "s/=.*//"; echo "$CHOSEN"', login=False)
    model, recorder = await stage.play(turns([ask]), config=policy)
    names = set(recorder.output("stdout").decode().split())
    assert {"CHOSEN", "TERM", "by-policy"} <= names
    assert names.isdisjoint({"HOME", "USER", "PATH", "CODEX_HOME"})
    assert model.exit_code("c1") == 0


PATCH = """*** Begin Patch
*** Add File: sub/dir/new.txt
+hello
+wörld
*** Update File: a.txt
@@
 one
-two
+TWO
*** Delete File: gone.txt
*** Update File: from.txt
*** Move to: moved/to.txt
@@
-x
+y
*** Update File: odd name%.txt
@@
-odd
+even
*** End Patch
"""


async def test_a_patch_adds_changes_moves_and_deletes_files(stage: Stage) -> None:
    before = {"a.txt": "one\ntwo\n", "gone.txt": "bye\n", "from.txt": "x\n", "odd name%.txt": "odd\n"}
    write_below(stage.workspace, before)
    model, recorder = await stage.play(turns([patch("c1", PATCH)]))
    assert "Success" in model.output("c1")
    assert files_below(stage.workspace) == {
        "a.txt": "one\nTWO\n",
        "moved/to.txt": "y\n",
        "odd name%.txt": "even\n",
        "sub/dir/new.txt": "hello\nwörld\n",
    }
    # The client learns from the code alone that it has to make the directory first.
    assert recorder.error_codes("fs/writeFile") == [-32004, -32004]
    assert len(recorder.answers("fs/createDirectory")) == 2


async def test_a_patch_that_does_not_fit_writes_nothing(stage: Stage) -> None:
    (stage.workspace / "a.txt").write_text("one\n", "utf-8")
    misfit = "*** Begin Patch\n*** Update File: {}\n@@\n-two\n+three\n*** End Patch\n"
    model, recorder = await stage.play(
        turns([patch("c1", misfit.format("a.txt"))], [patch("c2", misfit.format("missing.txt"))])
    )
    assert "Failed to find expected lines" in model.output("c1")
    assert "Success" not in model.output("c2")
    assert recorder.sent("fs/writeFile") == []


async def test_an_image_reaches_the_model_as_it_is(stage: Stage) -> None:
    (stage.workspace / "dot.png").write_bytes(base64.b64decode(ONE_PIXEL))
    view = [call(name, "view_image", {"path": path}) for name, path in (("c1", "dot.png"), ("c2", "no.png"))]
    model, _ = await stage.play(turns(view[:1], view[1:]))
    assert ONE_PIXEL in str(model.outputs["c1"])
    assert "unable to" in model.output("c2")


async def test_project_instructions_and_skills_are_read_from_the_server(stage: Stage) -> None:
    skill = "---\nname: demo\ndescription: says QUINCE\n---\nBody\n"
    files = {".agents/skills/demo/SKILL.md": skill, "AGENTS.md": "Rule: PLUM\n", ".git/HEAD": "ref\n"}
    write_below(stage.workspace, files)
    model, recorder = await stage.play(turns())
    assert "PLUM" in model.prompts[0]
    assert "QUINCE" in model.prompts[0]
    assert set(recorder.error_codes("fs/getMetadata")) == {-32004}


async def test_an_mcp_server_runs_where_the_commands_run(stage: Stage) -> None:
    config = f"""[mcp_servers.stub]
        command = "{sys.executable}"
        args = ["{mcp_stub.__file__}"]
        cwd = "{stage.workspace}"
        environment_id = "remote"
        required = true
        env = {{ STUB_MARKER = "m51" }}"""
    said = ("short", "q" * 200_000)
    script = turns(*([call(text[:1], "echo", {"message": text}, namespace="mcp__stub")] for text in said))
    model, recorder = await stage.play(script, config=config)
    assert f"marker=m51 cwd={stage.workspace} echo=short" in model.output("s")
    assert "echo=qqqq" in model.output("q")
    assert [entry.params["pipeStdin"] for entry in recorder.sent("process/start")] == [True]


async def test_commands_run_from_a_shell_snapshot(stage: Stage) -> None:
    script = turns([command("c1", "echo first; exit 2")], [command("c2", "echo second; exit 3")])
    model, recorder = await stage.play(script, features=["shell_snapshot_v2"])
    assert (model.exit_code("c1"), model.exit_code("c2")) == (2, 3)
    assert recorder.output("stdout") == b"first\nsecond\n"
    assert all(entry.params["shellSnapshot"]["scopeId"] for entry in recorder.sent("process/start"))


async def test_a_lying_server_is_found_out(stage: Stage) -> None:
    """The tests above can fail: with one wrong number the model sees a wrong exit code."""

    def always_success(entry: Entry) -> Message:
        if entry.method == "process/exited":
            return entry.message | {"params": entry.params | {"exitCode": 0}}
        return entry.message

    model, recorder = await stage.play(turns([command("c1", "echo out; exit 3")]), fault=always_success)
    assert model.exit_code("c1") == 0
    last = recorder.sent("process/closed", by="server")[0]
    answer = recorder.sent("process/start", by="server", kind="response")[0]
    for spoiled in (
        [*recorder.entries, answer],
        [*recorder.entries, last],
        [e for e in recorder.entries if e.method != "process/exited"],
        [
            replace(e, message={"id": 1, "error": "no"}, kind="error") if e is answer else e
            for e in recorder.entries
        ],
        [replace(e, message={"id": e.message["id"]}) if e is answer else e for e in recorder.entries],
        [e for e in recorder.entries if e.method != "process/output"],
    ):
        assert broken_rules(spoiled)
        assert broken_rules(spoiled, sorted_by_client=True)
    assert broken_rules(reversed(recorder.entries))
