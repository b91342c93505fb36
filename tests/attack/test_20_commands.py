"""A process that turned against its user asks the executor of its commands for more than its run may have.

Whoever speaks here has the token, and says what no real client would. Each refusal has beside it what is
allowed, asked for in the same way.
"""

import asyncio
import base64
import contextlib
import shlex
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast.confine.sandboxes as sandboxes
from holdfast.client.policy import Policy
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.narrowing import narrow
from holdfast.sandbox.policy.policy import BoundPolicy
from tests.support.commands import SERVERS_OWN, Scene, Speaker, scene
from tests.support.patience import patient
from tests.support.peer import ENV, Refused, descendants_named, fresh_mark, seen_running
from tests.support.rows import every_row

NOT_FOUND, INVALID, NO_METHOD = -32004, -32600, -32601


@pytest.fixture
async def place() -> AsyncIterator[Scene]:
    async with scene() as made:
        await made.begin()
        yield made


@pytest.fixture
async def speaker(place: Scene) -> AsyncIterator[Speaker]:
    async with place.speaking() as made:
        yield made


def entry(path: Path | str, access: str) -> dict[str, Any]:
    uri = path.as_uri() if isinstance(path, Path) else f"file://{path}"
    return {"path": {"type": "path", "path": uri}, "access": access}


def special(kind: str, access: str) -> dict[str, Any]:
    return {"path": {"type": "special", "value": {"kind": kind}}, "access": access}


def context(permissions: dict[str, Any], place: Scene, **more: Any) -> dict[str, Any]:
    where = {"cwd": place.ws.as_uri(), "workspaceRoots": [place.ws.as_uri()]}
    return {"permissions": permissions, "windowsSandboxLevel": "disabled", **where, **more}


def managed(*entries: dict[str, Any], network: str = "enabled") -> dict[str, Any]:
    files = {"type": "restricted", "entries": list(entries)}
    return {"type": "managed", "file_system": files, "network": network}


EVERYTHING: Final = managed(special("root", "write"))
WISHES: Final = {
    "no sandbox at all": None,
    "disabled": {"type": "disabled"},
    "external": {"type": "external", "network": "enabled"},
    "unrestricted": {"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"},
    "the whole disk": EVERYTHING,
}


def wish(permissions: dict[str, Any] | None, place: Scene) -> dict[str, Any] | None:
    return None if permissions is None else context(permissions, place)


@contextmanager
def listening(family: int, address: Any) -> Iterator[tuple[Any, list[int]]]:
    """A service of the host; its address, and a list with one entry for each caller."""
    callers: list[int] = []
    with socket.socket(family) as sock:
        sock.bind(address)
        sock.listen(16)

        def accept() -> None:
            while True:
                try:
                    taken, _ = sock.accept()
                except OSError:
                    return
                callers.append(1)
                taken.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield sock.getsockname(), callers
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()


@every_row("permissions", list(WISHES.values()), ids=list(WISHES))
async def test_no_permission_profile_is_more_than_the_run_has(permissions: dict[str, Any] | None) -> None:
    async with scene() as place:
        await place.begin()
        async with place.speaking() as speaker:
            with listening(socket.AF_INET, ("127.0.0.1", 0)) as ((_, port), callers):
                said = await speaker.run(
                    f"""
                    echo x > made && echo made
                    cat {place.outside}/file
                    echo x > {place.outside}/new || echo not-outside
                    cat {place.hidden}/file {place.state}/file {place.run}/* || echo not-hidden
                    (exec 3<>/dev/tcp/127.0.0.1/{port}) || echo not-connected
                    """.replace("(exec", "bash -c '(exec").replace(f"{port})", f"{port})'"),
                    sandbox=wish(permissions, place),
                )
    for word in ("made\n", "seen\n", "not-outside\n", "not-hidden\n", "not-connected\n"):
        assert word in said, said
    assert "secret" not in said
    assert "login" not in said
    assert callers == []


FILE_CALLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "read": ("fs/readFile", {"path": "hidden/file"}),
    "read the login": ("fs/readFile", {"path": "state/file"}),
    "read the token": ("fs/readFile", {"path": "runs/one/exec.sock"}),
    "write": ("fs/writeFile", {"path": "outside/new", "dataBase64": "eA=="}),
    "write into what is hidden": ("fs/writeFile", {"path": "hidden/new", "dataBase64": "eA=="}),
    "make": ("fs/createDirectory", {"path": "outside/new", "recursive": True}),
    "remove": ("fs/remove", {"path": "outside/file", "recursive": True, "force": True}),
    "copy out": ("fs/copy", {"sourcePath": "ws/mine", "destinationPath": "outside/new", "recursive": False}),
    "copy in": ("fs/copy", {"sourcePath": "hidden/file", "destinationPath": "ws/new", "recursive": False}),
    "open": ("fs/open", {"path": "hidden/file", "handleId": "h"}),
    "open for writing": ("fs/open", {"path": "outside/file", "handleId": "h", "mode": "replace"}),
    "open through a link": ("fs/open", {"path": "ws/link/file", "handleId": "h"}),
    "read through a link": ("fs/readFile", {"path": "ws/link/file"}),
    "look at": ("fs/getMetadata", {"path": "hidden/file"}),
    "list": ("fs/readDirectory", {"path": "state"}),
}


@every_row("permissions", list(WISHES.values()), ids=list(WISHES))
async def test_no_file_call_is_more_than_the_run_has(permissions: dict[str, Any] | None) -> None:
    async with scene() as place:
        await place.begin()
        (place.ws / "link").symlink_to(place.hidden)
        (place.ws / "mine").write_text("mine\n", "utf-8")
        async with place.speaking() as speaker:
            sandbox = wish(permissions, place)
            for method, params in FILE_CALLS.values():
                paths = {"path", "sourcePath", "destinationPath"}
                asked = {k: (place.top / v).as_uri() if k in paths else v for k, v in params.items()}
                with pytest.raises(Refused):
                    await speaker.peer.call(method, {**asked, "sandbox": sandbox})
            allowed = {"path": (place.ws / "mine").as_uri(), "sandbox": sandbox}
            read = await speaker.peer.call("fs/readFile", allowed)
            await speaker.peer.call("fs/writeFile", {**allowed, "dataBase64": "eQ=="})
    assert base64.b64decode(read["dataBase64"]) == b"mine\n"


@pytest.mark.parametrize(
    "method",
    [
        "http/request",
        "environmentConfig/read",
        "capabilities/discoverV2",
        "capabilityRoots/discoverV1",
        "fs/watchMissing",
        "process/denials",
        "process/resize",
        "process/closeStdin",
    ],
)
async def test_what_the_server_would_do_in_its_own_name_is_not_answered(
    speaker: Speaker, method: str
) -> None:
    with pytest.raises(Refused) as refused:
        await speaker.peer.call(method, {})
    assert refused.value.code == NO_METHOD
    assert (await speaker.peer.call("environment/status"))["status"] == "ready"


async def test_nothing_of_the_host_is_let_through_to_a_command(place: Scene, speaker: Speaker) -> None:
    path = str(place.outside / "service.sock")
    with (
        listening(socket.AF_UNIX, path) as (_, by_path),
        listening(socket.AF_INET, ("127.0.0.1", 0)) as ((_, port), by_port),
    ):
        reach = f"python3 -c 'import socket; socket.socket(1).connect(\"{path}\")' && echo reached"
        sandbox = context(EVERYTHING, place, unixSockets=[path, place.socket])
        assert "reached" not in await speaker.run(reach, sandbox=sandbox)
        for network in (
            {"loopbackPorts": [port]},
            {"allowUnixSockets": [path]},
            {"dangerouslyAllowAllUnixSockets": True},
        ):
            with pytest.raises(Refused):
                await speaker.run(reach, sandbox=sandbox, enforceManagedNetwork=True, managedNetwork=network)
    assert (by_path, by_port) == ([], [])


async def test_a_command_reaches_no_executor(place: Scene, speaker: Speaker) -> None:
    """The process does: by the same path, in the same words."""
    reach = f"""python3 -c 'import socket; socket.socket(1).connect("{place.socket}"); print("reached")'"""
    assert "reached" not in await speaker.run(reach, sandbox=None)
    again = place.environment.run(["/bin/sh", "-c", reach], cwd=place.ws, env=dict(ENV), policy=place.own)
    assert (await again).stdout == b"reached\n"


async def test_what_a_command_inherits_is_the_runs_own(speaker: Speaker) -> None:
    whole = {"inherit": "all", "ignoreDefaultExcludes": True, "exclude": [], "set": {}, "includeOnly": []}
    said = await speaker.run("env", envPolicy=whole, env={})
    assert "RUN=own\n" in said
    assert not any(name in said for name in SERVERS_OWN)


async def test_a_place_that_a_variable_names_is_not_granted_by_that(place: Scene, speaker: Speaker) -> None:
    asked = context(managed(special("root", "read"), special("tmpdir", "write")), place)
    for folder, made in ((place.tmp, True), (place.outside, False)):
        said = await speaker.run(
            "echo x > $TMPDIR/new && echo made", env={**ENV, "TMPDIR": str(folder)}, sandbox=asked
        )
        assert ("made" in said) is made, said


async def test_a_link_is_judged_by_where_it_leads(place: Scene, speaker: Speaker) -> None:
    (place.ws / "link").symlink_to(place.outside)
    asked = context(managed(special("root", "read"), entry(place.ws / "link", "write")), place)
    said = await speaker.run(f"echo x > {place.outside}/new && echo made", sandbox=asked)
    assert "made" not in said
    assert not (place.outside / "new").exists()


async def test_a_directory_that_becomes_a_link_meanwhile_grants_nothing(
    place: Scene, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command exchanges it between the comparison with the ceiling and the plan."""
    (place.ws / "sub").mkdir()

    def exchanging(asked: BoundPolicy, ceiling: BoundPolicy) -> BoundPolicy:
        narrowed = narrow(asked, ceiling)
        if not (place.ws / "sub").is_symlink():
            (place.ws / "sub").rename(place.ws / "was")
            (place.ws / "sub").symlink_to(place.outside)
        return narrowed

    monkeypatch.setattr(sandboxes, "narrow", exchanging)
    rules = (special("root", "read"), entry(place.ws, "read"), entry(place.ws / "sub", "write"))
    sandbox = context(managed(*rules), place)
    with pytest.raises(Refused):
        await speaker.run(f"echo x > {place.outside}/new", sandbox=sandbox)
    (place.ws / "sub").unlink()
    (place.ws / "sub").mkdir()
    params = {"path": (place.outside / "new").as_uri(), "dataBase64": "eA==", "sandbox": sandbox}
    with pytest.raises(Refused):
        await speaker.peer.call("fs/writeFile", params)
    assert not (place.outside / "new").exists()
    monkeypatch.undo()
    (place.ws / "sub").unlink()
    (place.ws / "sub").mkdir()
    assert "made" in await speaker.run("echo x > sub/new && echo made", sandbox=sandbox)


async def test_a_command_has_no_more_than_the_limits_of_its_run() -> None:
    async with scene() as place:
        await place.begin(limits=Limits(open_files=300))
        async with place.speaking() as speaker:
            assert await speaker.run("ulimit -Hn") == "300\n"
            assert await speaker.run("ulimit -Hn", limits={"openFiles": 4096}) == "300\n"
            assert await speaker.run("ulimit -Hn", limits={"openFiles": 200}) == "200\n"


def holding(size: int) -> str:
    code = f"x = b'x' * {size}; print('held', flush=True); import time; time.sleep(1000)"
    return shlex.join([sys.executable, "-I", "-S", "-c", code])


SHARES: Final = {  # what one command may do and two of them may not, if that is the limit of their run
    "memory": (Limits(memory=160 << 20), holding(96 << 20)),
    "processes": (
        Limits(pids=24),
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do sleep 1000 & done; echo held; wait",
    ),
}


@every_row("share", list(SHARES))
async def test_the_limits_of_a_run_are_those_of_its_commands_together(share: str) -> None:
    limits, script = SHARES[share]
    async with scene() as place:
        await place.begin(limits=limits)
        async with place.speaking() as speaker:
            peer, where = speaker.peer, place.ws.as_uri()
            await peer.start("alone", script, cwd=where)
            await peer.output_has("alone", b"held")
            await peer.start("besides", script, cwd=where)

            def one_is_too_many() -> bool:
                ended = [name for name in ("alone", "besides") if "process/exited" in peer.methods(name)]
                return bool(ended) or b"fork" in peer.output("besides")

            await peer.until(one_is_too_many)


async def test_what_commands_of_a_run_write_one_after_the_other_is_added_up() -> None:
    """None of them writes too much, and when they have together, the run is ended with its process."""
    done = 0
    async with scene() as place:
        process = await place.begin(limits=Limits(disk=24 << 20))
        async with place.speaking() as speaker:
            with contextlib.suppress(ConnectionError, Refused):  # the run may end before the next one begins
                for name in ("a", "b", "c", "d"):
                    writes = f"head -c 10M /dev/zero > {name} && sync {name} && sleep 0.5 && echo done"
                    done += "done" in await speaker.run(writes)
        ended = await process.wait()
    assert done == 2
    assert ended.limit is not None
    assert "disk limit 24 MiB reached" in ended.limit.message


async def test_the_network_of_the_process_is_not_that_of_its_commands_unless_it_is_granted() -> None:
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as ((_, port), callers):
        reach = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'"
        async with scene() as place:
            open_net = Policy.workspace_write(place.ws, network=True)
            await place.begin(policy=open_net)
            async with place.speaking() as speaker:
                assert "connected" in await speaker.run(reach)
                closed = context(managed(special("root", "read"), network="restricted"), place)
                assert "connected" not in await speaker.run(reach, sandbox=closed)
                await asyncio.to_thread(lambda: callers or None)
    assert len(callers) <= 1


async def test_a_ceiling_wider_than_the_process_itself_is_not_had() -> None:
    async with scene() as place:
        await place.begin(policy=Policy.full_access())
        async with place.speaking() as speaker:
            said = await speaker.run(
                f"cat {place.hidden}/file; echo x > {place.outside}/new; echo x > a && echo a"
            )
    assert "secret" not in said
    assert "a\n" in said  # the order of two streams is nobody's promise
    assert not (place.outside / "new").exists()


async def test_only_the_token_opens_the_socket_and_not_for_everybody_at_once(place: Scene) -> None:
    for token in ("", "another-token"):
        async with place.connected(token) as peer:
            with pytest.raises((ConnectionError, KeyError)):
                await peer.initialize()
    async with place.speaking() as speaker:
        assert await speaker.run("echo still here") == "still here\n"


async def test_a_flood_of_connections_and_commands_is_refused_and_what_runs_goes_on(place: Scene) -> None:
    async with place.speaking() as speaker:
        held = [await asyncio.open_unix_connection(place.socket) for _ in range(40)]
        heard = [asyncio.ensure_future(reader.readline()) for reader, _ in held]
        turned_away = 0
        async with asyncio.timeout(patient(30)):
            for line in asyncio.as_completed(heard):  # those that are let in hear nothing
                turned_away += b"connections are open" in await line
                if turned_away == 30:
                    break
        for task in heard:
            task.cancel()
        for _, writer in held:
            writer.close()
        for number in range(64):
            await speaker.peer.start(f"s{number}", "sleep", "100", cwd=place.ws.as_uri())
        with pytest.raises(Refused):
            await speaker.peer.start("more", "sleep", "100", cwd=place.ws.as_uri())
        assert (await speaker.peer.call("process/terminate", {"processId": "s0"}))["running"]


async def test_nobody_elses_session_or_process_is_reached(place: Scene, speaker: Speaker) -> None:
    async with place.connected() as peer:
        for session in (place.environment.session_id, speaker.peer.session_id):
            with pytest.raises(Refused) as refused:
                await peer.initialize(resume=session)
            assert refused.value.code == INVALID
        await peer.initialize()
        mark = fresh_mark()
        await speaker.peer.start("mine", "sleep", mark, cwd=place.ws.as_uri())
        assert not (await peer.call("process/terminate", {"processId": "mine"}))["running"]
    assert await seen_running(mark)


async def test_a_command_has_no_executor_of_its_own(place: Scene, speaker: Speaker) -> None:
    more = {"socket": str(place.ws / "exec.sock"), "token": "t", "env": {}}
    asked = {**more, "sandbox": context(EVERYTHING, place)}
    with pytest.raises(Refused):
        await speaker.run("true", commands=asked)


async def test_who_begins_in_a_hidden_directory_sees_nothing_of_it(place: Scene, speaker: Speaker) -> None:
    look = "ls; cat file; echo x > new; ls .."
    said = await speaker.run(look, cwd=place.hidden.as_uri())
    assert "secret" not in said
    assert not (place.hidden / "new").exists()
    assert "seen\n" in await speaker.run(look, cwd=place.outside.as_uri())


async def test_a_policy_of_ten_thousand_rules_is_refused_at_once(place: Scene, speaker: Speaker) -> None:
    rules = [entry(f"/a/{number}", "write") for number in range(10_000)]
    with pytest.raises(Refused):
        await speaker.run("true", sandbox=context(managed(special("root", "read"), *rules), place))


async def test_everything_ends_with_the_process() -> None:
    async with scene() as place:
        process = await place.begin()
        async with place.speaking() as speaker:
            mark = fresh_mark()
            script = f"setsid sh -c 'setsid sleep {mark} & exec sleep {mark}' & sleep {mark}"
            await speaker.peer.start("c", script, cwd=place.ws.as_uri())
            assert await seen_running(mark, 3)
            await process.terminate()
            async with asyncio.timeout(patient(20)):
                while descendants_named(mark) or Path(place.socket).exists():
                    await asyncio.sleep(0.01)
            with pytest.raises((ConnectionError, OSError)):
                await speaker.peer.call("environment/status")
