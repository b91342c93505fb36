"""process/*: start, read, write, signal, terminate, and what a client sees of each."""

import asyncio
import errno
import uuid
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SandboxUnavailable, from_rpc_error
from holdfast.sandbox.plan.select import Trial, Way
from holdfast.server.executor import Clocks
from tests.support.patience import patient
from tests.support.peer import Refused, connected, descendants_named, ready, seen_running, serving
from tests.support.tiers import both_loops

__all__ = ["both_loops"]


async def test_a_short_command_answers_first_and_then_tells_its_events_in_order() -> None:
    async with serving() as (url, _), ready(url) as peer:
        result = await peer.start("p", "echo out; echo err >&2; exit 3")
        assert result == {"processId": "p", "sandboxType": "none"}
        events = await peer.closed("p")
        assert [event["params"]["seq"] for event in events] == list(range(1, len(events) + 1))
        assert peer.methods("p")[-2:] == ["process/exited", "process/closed"]
        assert (peer.output("p", "stdout"), peer.output("p", "stderr")) == (b"out\n", b"err\n")
        assert peer.exit_code("p") == 3


async def test_what_was_written_before_the_exit_is_numbered_before_it() -> None:
    async with serving() as (url, _), ready(url) as peer:
        for number in range(20):
            name = f"p{number}"
            await peer.start(name, "/usr/bin/head", "-c", "900000", "/dev/zero")
            await peer.closed(name)
            assert peer.methods(name)[-2:] == ["process/exited", "process/closed"]
            assert len(peer.output(name)) == 900_000


async def test_our_own_clients_also_hear_what_was_enforced_and_what_was_used() -> None:
    async with serving() as (url, _), ready(url, holdfast=True) as peer:
        result = await peer.start("p", "true")
        nothing: dict[str, object] = {
            "missing": [],
            "weakened": [],
            "remedies": [],
            "fingerprint": None,
            "limits": [],
            "network": [],
        }
        assert result["enforcement"] == {"backend": "none", **nothing}
        events = await peer.closed("p")
        usage = events[-2]["params"]["usage"]
        assert usage["peakRssBytes"] > 0
        assert set(usage) == {"userMs", "systemMs", "peakRssBytes"}
        page = await peer.call("process/read", {"processId": "p"})
        assert page["usage"] == usage


async def test_the_child_sees_exactly_the_environment_it_was_given() -> None:
    async with serving(environ={"PATH": "/usr/bin:/bin", "LEAK": "1"}) as (url, _), ready(url) as peer:
        await peer.start("p", "/usr/bin/env", "-u", "NOTHING", env={"ONLY": "this"})
        await peer.closed("p")
        assert peer.output("p") == b"ONLY=this\n"


async def test_with_a_policy_the_servers_environment_is_filtered_and_overlaid() -> None:
    environ = {"PATH": "/usr/bin:/bin", "KEEP": "1", "DROP": "1", "OPENAI_IDENTITY_TOKEN_FILE": "x"}
    policy = {
        "inherit": "all",
        "ignoreDefaultExcludes": True,
        "exclude": ["DR*"],
        "set": {"SET": "s"},
        "includeOnly": [],
    }
    async with serving(environ=environ) as (url, _), ready(url) as peer:
        await peer.start("p", "/usr/bin/env", "-u", "X", env={"KEEP": "2"}, envPolicy=policy)
        await peer.closed("p")
        seen = set(peer.output("p").decode().splitlines())
        assert seen == {"PATH=/usr/bin:/bin", "KEEP=2", "SET=s"}


@pytest.mark.parametrize("tty", [False, True])
async def test_the_child_inherits_nothing_but_its_three_streams(tty: bool) -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "/bin/ls", "/proc/self/fd", tty=tty)
        await peer.closed("p")
        assert peer.output("p").split() == [b"0", b"1", b"2", b"3"]  # the last is ls reading the directory


@pytest.mark.parametrize("tty", [False, True])
async def test_the_child_leads_a_session_with_default_signals(tty: bool) -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("ids", "/bin/cat", "/proc/self/stat", tty=tty)
        await peer.start("masks", "/bin/grep", "-E", "Sig(Ign|Blk)", "/proc/self/status", tty=tty)
        await peer.closed("ids")
        await peer.closed("masks")
        pid, _name, _state, _parent, group, session, *_ = peer.output("ids").split()
        assert pid == group == session
        for mask in peer.output("masks").split()[1::2]:
            assert int(mask, 16) & ~(0b11 << 31) == 0  # signals 32 and 33 are the C library's own


async def test_arg0_replaces_the_name_but_not_the_program() -> None:
    async with serving() as (url, _), ready(url) as peer:
        for tty in (False, True):
            name = f"p{tty}"
            await peer.start(name, "/bin/cat", "/proc/self/cmdline", arg0="other", tty=tty)
            await peer.closed(name)
            assert peer.output(name).startswith(b"other\0")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"argv": []}, -32602),
        ({"cwd": "file:///C:/x"}, -32602),
        ({"cwd": "/tmp"}, -32602),
        ({"argv": ["/does/not/exist"]}, -32603),
        ({"argv": ["does-not-exist"]}, -32603),
        ({"argv": ["/tmp"]}, -32603),
        ({"argv": [""]}, -32603),
        ({"argv": ["/bin/echo", "a\0b"]}, -32603),
        ({"cwd": "file:///does/not/exist"}, -32603),
        ({"enforceManagedNetwork": True}, -32602),
        ({"networkProxy": {"proxy": {}}}, -32602),
    ],
)
async def test_a_start_that_cannot_be_is_refused_and_leaves_no_entry(
    more: dict[str, object], code: int
) -> None:
    async with serving() as (url, _), ready(url) as peer:
        for tty in (False, True):
            with pytest.raises(Refused) as refused:
                await peer.start("p", "/bin/true", "x", **{"tty": tty, **more})
            assert refused.value.code == code
        await peer.start("p", "true")
        assert await peer.closed("p")


RESTRICTED = {
    "permissions": {
        "type": "managed",
        "file_system": {"type": "restricted", "entries": []},
        "network": "restricted",
    },
    "windowsSandboxLevel": "disabled",
}


async def test_a_sandbox_that_cannot_be_enforced_is_an_error_and_runs_nothing(tmp_path: Path) -> None:
    async with serving() as (url, executor), ready(url) as peer:
        executor.sandboxes._trials = dict.fromkeys(Way, Trial("userns", errno.EPERM))
        with pytest.raises(Refused) as refused:
            await peer.start("p", f"touch {tmp_path}/ran", sandbox=RESTRICTED)
        assert (refused.value.code, refused.value.data) == (-32602, None)
        assert not list(tmp_path.iterdir())


async def test_a_client_of_ours_is_told_the_class_of_an_error_and_what_to_do() -> None:
    async with serving() as (url, executor), connected(url) as peer:
        await peer.initialize(holdfast=True)
        executor.sandboxes._trials = dict.fromkeys(Way, Trial("userns", errno.EPERM))
        with pytest.raises(Refused) as refused:
            await peer.start("p", "true", sandbox=RESTRICTED)
        told = from_rpc_error(refused.value.code, refused.value.message, refused.value.data)
        assert isinstance(told, SandboxUnavailable)
        assert told.remedy


async def test_an_id_in_use_is_refused_until_the_closed_process_is_forgotten() -> None:
    async with serving(clocks=Clocks(closed_s=0.05)) as (url, _), ready(url) as peer:
        await peer.start("p", "true")
        await peer.closed("p")
        peer.events.clear()
        async with asyncio.timeout(patient(20)):
            while True:
                try:
                    await peer.call("process/read", {"processId": "p"})
                except Refused as refused:
                    assert refused.code == -32600
                    break
        await peer.start("p", "sleep 60")
        with pytest.raises(Refused) as again:
            await peer.start("p", "true")
        assert again.value.code == -32600


async def test_late_output_of_a_grandchild_is_delivered_before_the_close(tmp_path: Path) -> None:
    gate = f"{tmp_path}/gate"
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", f"mkfifo {gate}; setsid sh -c 'cat {gate}; echo late' & sleep 0; echo early")
        await peer.until(lambda: "process/exited" in peer.methods("p"))
        assert "process/closed" not in peer.methods("p")
        await peer.start("q", f"echo through > {gate}")
        await peer.closed("p")
        assert peer.output("p") == b"early\nthrough\nlate\n"


async def test_a_terminal_has_one_stream_a_size_and_a_controlling_tty() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "stty size; tty; echo err >&2", tty=True)
        events = await peer.closed("p")
        text = peer.output("p").decode()
        assert text.startswith("24 80\r\n/dev/pts/")
        assert text.endswith("err\r\n")
        assert {e["params"]["stream"] for e in events if "stream" in e["params"]} == {"pty"}


async def test_a_terminal_can_be_resized_and_the_command_is_told() -> None:
    async with serving() as (url, _), ready(url) as peer:
        script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done"
        await peer.start("p", script, tty=True)
        await peer.output_has("p", b"ready")
        await peer.call("process/resize", {"processId": "p", "rows": 50, "cols": 132})
        await peer.closed("p")
        assert b"50 132" in peer.output("p")
        await peer.start("q", "sleep 60")
        with pytest.raises(Refused) as refused:
            await peer.call("process/resize", {"processId": "q", "rows": 50, "cols": 132})
        assert refused.value.code == -32600


async def test_standard_input_is_written_once_per_write_id() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "cat", pipeStdin=True)
        for write_id in ("1", "1", "2", "1"):
            assert await peer.write("p", write_id.encode(), write_id) == "accepted"
        assert (await peer.call("process/closeStdin", {"processId": "p"})) == {"status": "accepted"}
        await peer.closed("p")
        assert peer.output("p") == b"12"
        assert peer.exit_code("p") == 0


async def test_why_a_write_was_not_taken() -> None:
    async with serving() as (url, _), ready(url) as peer:
        assert await peer.write("nobody", b"x", "1") == "unknownProcess"
        await peer.start("null", "sleep 60")
        assert await peer.write("null", b"x", "1") == "stdinClosed"
        await peer.start("ended", "cat >/dev/null; sleep 60", pipeStdin=True)
        assert await peer.write("ended", b"x", "1") == "accepted"
        await peer.call("process/closeStdin", {"processId": "ended"})
        assert await peer.write("ended", b"x", "1") == "accepted"
        assert await peer.write("ended", b"x", "2") == "stdinClosed"
        with pytest.raises(Refused) as refused:
            await peer.write("ended", b"x", "")
        assert refused.value.code == -32602


async def test_end_of_file_on_a_terminal_is_control_d() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "cat; echo done", tty=True)
        await peer.write("p", b"line\n", "1")
        await peer.output_has("p", b"line\r\nline\r\n")
        await peer.call("process/closeStdin", {"processId": "p"})
        await peer.closed("p")
        assert peer.output("p").endswith(b"done\r\n")


async def test_terminate_ends_the_group_and_new_writes_fail_while_repeated_ones_do_not() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "sleep 61 & cat", pipeStdin=True)
        assert await peer.write("p", b"x", "1") == "accepted"
        assert await peer.call("process/terminate", {"processId": "p"}) == {"running": True}
        await peer.closed("p")
        assert peer.exit_code("p") == 137
        assert await peer.call("process/terminate", {"processId": "p"}) == {"running": False}
        assert await peer.write("p", b"x", "1") == "accepted"
        with pytest.raises(Refused) as refused:
            await peer.write("p", b"x", "2")
        assert refused.value.code == -32603


async def test_a_terminated_process_closes_although_somebody_else_holds_its_pipes() -> None:
    mark = f"30{uuid.uuid4().int % 10**6}"
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", f"setsid sh -c 'echo up; exec sleep {mark}' & wait")
        await peer.output_has("p", b"up")
        await peer.call("process/terminate", {"processId": "p"})
        await peer.closed("p")
        await seen_running(mark)
    assert not descendants_named(mark)  # it outlived its command, but not the server


async def test_terminate_on_a_terminal_ends_background_jobs_of_an_interactive_shell() -> None:
    mark = f"31{uuid.uuid4().int % 10**6}"
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "/bin/bash", "--norc", "-i", tty=True)
        await peer.write("p", f"sleep {mark} &\necho r''eady\n".encode(), "1")
        await peer.output_has("p", b"ready\r\n")
        await seen_running(mark)
        await peer.call("process/terminate", {"processId": "p"})
        await peer.closed("p")
        async with asyncio.timeout(patient(20)):
            while descendants_named(mark):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "code"), [("interrupt", 130), ("SIGTERM", 143), ("usr1", 138), ("SIGKILL", 137)]
)
@pytest.mark.parametrize("tty", [False, True])
async def test_signals_by_name_end_it_with_128_plus_n(name: str, code: int, tty: bool) -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "echo up; exec sleep 60", tty=tty)
        await peer.output_has("p", b"up")
        assert await peer.call("process/signal", {"processId": "p", "signal": name}) == {}
        await peer.closed("p")
        assert peer.exit_code("p") == code
        assert await peer.call("process/signal", {"processId": "p", "signal": name}) == {}


async def test_an_unknown_signal_is_refused() -> None:
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.call("process/signal", {"processId": "p", "signal": "nonsense"})
        assert refused.value.code == -32602


async def test_a_long_poll_wakes_on_output_exit_and_close() -> None:
    async with serving(slots=8) as (url, _), ready(url) as peer:
        await peer.start("p", "read a; echo $a; read b; exit 4", pipeStdin=True)

        async def poll(after: int) -> dict[str, Any]:
            params = {"processId": "p", "afterSeq": after, "waitMs": 8000}
            return await peer.call("process/read", params)

        waiting = asyncio.ensure_future(poll(0))
        await peer.write("p", b"one\n", "1")
        page = await waiting
        assert [chunk["seq"] for chunk in page["chunks"]] == [1]
        assert page["nextSeq"] == 2
        waiting = asyncio.ensure_future(poll(1))
        await peer.write("p", b"two\n", "2")
        page = await waiting
        assert (page["exited"], page["exitCode"], page["chunks"]) == (True, 4, [])
        page = await poll(2)
        assert page["closed"] is True


async def test_a_poll_on_a_silent_process_returns_at_its_deadline() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "sleep 60")
        page = await peer.call("process/read", {"processId": "p", "waitMs": 30})
        assert page == {
            "chunks": [],
            "nextSeq": 1,
            "exited": False,
            "exitCode": None,
            "closed": False,
            "failure": None,
            "sandboxDenied": False,
        }


async def test_only_the_newest_mebibyte_is_kept_and_the_gap_shows() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "head -c 3000000 /dev/zero")
        events = await peer.closed("p")
        assert len(peer.output("p")) == 3_000_000
        page = await peer.call("process/read", {"processId": "p"})
        kept = sum(len(b64decode(chunk["chunk"])) for chunk in page["chunks"])
        assert 1024 * 1024 - 64 * 1024 <= kept <= 1024 * 1024
        assert page["chunks"][0]["seq"] > 1
        assert page["nextSeq"] == len(events) + 1


async def test_of_concurrent_starts_with_one_id_exactly_one_runs() -> None:
    async with serving(slots=8) as (url, _), ready(url) as peer:
        results = await asyncio.gather(
            *(peer.start("same", "echo once") for _ in range(6)), return_exceptions=True
        )
        assert sum(isinstance(result, dict) for result in results) == 1
        assert {result.code for result in results if isinstance(result, Refused)} == {-32600}
        await peer.closed("same")
        assert peer.output("same") == b"once\n"


async def test_a_start_can_be_cancelled_before_it_is_one() -> None:
    async with serving(slots=4) as (url, _), ready(url) as peer:
        for number in range(50):
            name = f"p{number}"
            command = {"argv": ["/bin/sleep", "60"], "cwd": "file:///tmp", "env": {}, "tty": False}
            asked = await peer.ask("process/start", {"processId": name, **command})
            ended = await peer.call("process/terminate", {"processId": name})
            try:
                await peer.answer(asked)
            except Refused as refused:
                assert (refused.code, ended) == (-32600, {"running": True})
                assert name not in peer.events
                return
        pytest.fail("no start was ever cancelled in 50 tries")


async def test_two_sessions_do_not_see_each_others_processes() -> None:
    async with serving() as (url, _), ready(url) as one, ready(url) as two:
        await one.start("p", "sleep 60")
        await two.start("p", "true")
        await two.closed("p")
        assert "p" not in one.events


async def test_a_dropped_connection_loses_no_output_and_repeats_none() -> None:
    async with serving() as (url, _):
        async with ready(url) as peer:
            await peer.start("p", "read x; echo one; read x; echo two", pipeStdin=True)
            await peer.write("p", b"\n", "1")
            await peer.output_has("p", b"one\n")
            session = peer.session_id
        async with connected(url) as again:
            async with asyncio.timeout(patient(20)):
                while True:
                    try:
                        await again.initialize(resume=session)
                        break
                    except Refused as refused:
                        assert refused.code == -32010
            assert await again.write("p", b"\n", "1") == "accepted"
            page = await again.call("process/read", {"processId": "p", "afterSeq": 1})
            assert (page["chunks"], page["nextSeq"]) == ([], 2)
            assert await again.write("p", b"\n", "2") == "accepted"
            await again.closed("p")
            assert [event["params"]["seq"] for event in again.events["p"]] == [2, 3, 4]
            assert again.output("p") == b"two\n"
