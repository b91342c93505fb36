"""process/start and fs/* under a policy: what is refused, what keeps working, what is said about it."""

import asyncio
import base64
import contextlib
import os
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast.confine import launch
from holdfast.sandbox.kernel import landlock
from holdfast.sandbox.plan.select import Backend, Choice
from tests.support.patience import patient
from tests.support.peer import Peer, Refused, descendants_named, ready, serving
from tests.support.tcp import tcp_server

ROOT_READ = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
WORKSPACE = {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace and a directory beside it; the policies here leave no temporary directory writable."""
    (tmp_path / "ws" / ".git").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret", "utf-8")
    return tmp_path


def policy(place: Path, *entries: dict[str, Any], network: str = "restricted") -> dict[str, Any]:
    uri = (place / "ws").as_uri()
    files = {"type": "restricted", "entries": list(entries) or [ROOT_READ, WORKSPACE]}
    return {
        "permissions": {"type": "managed", "file_system": files, "network": network},
        "cwd": uri,
        "workspaceRoots": [uri],
        "windowsSandboxLevel": "disabled",
    }


def at(path: Path, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": path.as_uri()}, "access": access}


async def run(peer: Peer, place: Path, script: str, *entries: dict[str, Any], **more: Any) -> tuple[int, str]:
    """Exit code and output of a confined shell script."""
    name = uuid.uuid4().hex
    network = more.pop("network", "restricted")
    sandbox = policy(place, *entries, network=network)
    started = await peer.start(name, script, cwd=(place / "ws").as_uri(), sandbox=sandbox, **more)
    assert started["sandboxType"] == "linuxSeccomp"
    await peer.closed(name)
    return peer.exit_code(name), peer.output(name).decode()


async def test_the_workspace_is_writable_and_nothing_else_is(place: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        script = (
            "echo in > f; cat f; for d in ../outside /etc . .git; do echo x > $d/new && echo wrote $d; done"
        )
        assert await run(peer, place, script + " 2>/dev/null; true") == (0, "in\nwrote .\n")
        assert not (place / "outside" / "new").exists()
        assert (place / "ws" / "new").exists()


async def test_a_confined_command_gets_its_own_name(place: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        for tty in (False, True):
            more = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place), "tty": tty, "arg0": "other"}
            await peer.start(f"p{tty}", "/bin/cat", "/proc/self/cmdline", **more)
            await peer.closed(f"p{tty}")
            assert peer.output(f"p{tty}").startswith(b"other\0")


async def test_a_denied_file_cannot_be_read_and_its_parent_not_renamed_away(place: Path) -> None:
    (place / "ws" / "conf").mkdir()
    (place / "ws" / "conf" / "key").write_text("key", "utf-8")
    entries = (ROOT_READ, WORKSPACE, at(place / "ws" / "conf" / "key", "deny"))
    async with serving() as (url, _), ready(url) as peer:
        code, _ = await run(peer, place, "cat conf/key", *entries)
        assert code != 0
        code, _ = await run(peer, place, "mv conf gone", *entries)
        assert code != 0
        code, text = await run(
            peer, place, "cat conf/key gone/key; echo other > conf/other; cat conf/other", *entries
        )
        assert code == 0
        assert "other\n" in text
        assert "key" not in text.replace("conf/key", "").replace("gone/key", "")


async def test_only_what_is_listed_can_be_read_when_reading_is_restricted(place: Path) -> None:
    minimal = {"path": {"type": "special", "value": {"kind": "minimal"}}, "access": "read"}
    async with serving() as (url, _), ready(url) as peer:
        _, text = await run(
            peer,
            place,
            f"echo in > f; cat f; ls {place}/outside /root; cat /etc/hostname >&2",
            minimal,
            WORKSPACE,
        )
        assert text.startswith("in\n")
        assert "secret" not in text


async def test_the_network_is_off_but_loopback_inside_works(place: Path) -> None:
    async def close_at_once(*_: object) -> None:
        pass

    inside = (
        "import asyncio, socket\n"
        "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n"
        "print(asyncio.run(asyncio.wait_for(asyncio.to_thread(lambda: 'works'), 5)))"
    )
    async with tcp_server(close_at_once) as port, serving() as (url, _), ready(url) as peer:
        outside = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        code, _ = await run(peer, place, f'python3 -c "{outside}"')
        assert code != 0
        assert await run(peer, place, f'python3 -c "{inside}"') == (0, "works\n")
        code, _ = await run(peer, place, f'python3 -c "{outside}"', network="enabled")
        assert code == 0


# A launcher that never hears of a status pipe by itself, as when a command ends before its turn comes.
DEAF = """
import select as real, types
import holdfast.sandbox.launcher.launcher as launcher
class Poll:
    def __init__(self): self.poll_, self.known = real.poll(), 0
    def register(self, *args):
        self.known += 1
        if self.known <= 2: self.poll_.register(*args)
    def unregister(self, fd): pass
    def poll(self, timeout=None): return self.poll_.poll(timeout)
launcher.select = types.SimpleNamespace(poll=Poll, POLLIN=real.POLLIN)
launcher.main()
"""


async def test_a_start_is_reported_before_its_end_however_quick_it_was(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = launch._BOOT.partition("; from holdfast")[0]
    monkeypatch.setattr(launch, "_BOOT", f"{path}\n{DEAF}")
    async with serving() as (url, _), ready(url) as peer:
        assert await run(peer, place, "exit 3") == (3, "")


async def test_exit_codes_and_signals_come_through(place: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        for tty in (False, True):
            assert (await run(peer, place, "exit 7", tty=tty))[0] == 7
            assert (await run(peer, place, "kill -TERM $$", tty=tty))[0] == 143


@pytest.mark.parametrize(("signal", "code"), [("interrupt", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("tty", [False, True])
async def test_a_confined_command_can_be_signalled(place: Path, signal: str, code: int, tty: bool) -> None:
    async with serving() as (url, _), ready(url) as peer:
        more = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place), "tty": tty}
        await peer.start("p", "echo up; exec sleep 60", **more)
        await peer.output_has("p", b"up")
        await peer.call("process/signal", {"processId": "p", "signal": signal})
        await peer.closed("p")
        assert peer.exit_code("p") == code


async def test_terminate_ends_everything_inside_also_what_detached_itself(place: Path) -> None:
    mark = f"8{uuid.uuid4().int % 10**7:07}"
    async with serving() as (url, _), ready(url) as peer:
        more = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place)}
        await peer.start("p", f"setsid sh -c 'echo up; exec sleep {mark}' & sleep {mark}", **more)
        await peer.output_has("p", b"up")
        assert await peer.call("process/terminate", {"processId": "p"}) == {"running": True}
        await peer.closed("p")
        async with asyncio.timeout(patient(20)):
            while descendants_named(mark):
                await asyncio.sleep(0.01)


async def test_a_terminal_has_job_control_and_a_name(place: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        code, text = await run(peer, place, "tty; set -m; sleep 0 & wait; stty size", tty=True)
        assert code == 0
        assert "not a tty" not in text
        assert "job control" not in text
        assert text.endswith("24 80\r\n")


async def test_a_denial_names_the_path_the_rule_and_the_grant(place: Path) -> None:
    async with serving() as (url, _), ready(url, holdfast=True) as peer:
        more = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place)}
        started = await peer.start("p", f"echo x > {place}/outside/new", **more)
        assert started["enforcement"]["backend"] == "namespaces"
        events = await peer.closed("p")
        [end] = [event["params"] for event in events if event["method"] == "process/exited"]
        assert end["sandboxDenied"] is True
        denial = end["denial"]
        assert (denial["kind"], denial["access"]) == ("filesystem", "write")
        assert denial["path"] == f"{place}/outside/new"
        assert denial["grant"] == f"--allow-write {place}/outside"
        assert f"{place}/ws" in denial["rule"]


async def test_an_ordinary_failure_is_not_called_a_denial(place: Path) -> None:
    async with serving() as (url, _), ready(url, holdfast=True) as peer:
        more = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place)}
        await peer.start("p", "cat missing; exit 1", **more)
        events = await peer.closed("p")
        [end] = [event["params"] for event in events if event["method"] == "process/exited"]
        assert (end["sandboxDenied"], end["denial"]) == (False, None)


async def test_a_missing_program_is_the_commands_failure_not_the_sandboxes(place: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.start("p", "/no/such", "x", cwd=(place / "ws").as_uri(), sandbox=policy(place))
        assert refused.value.code == -32603
        assert "os error 2" in refused.value.message


# --- files


async def file_call(
    peer: Peer, place: Path, method: str, path: Path, *entries: dict[str, Any], **more: Any
) -> Any:
    return await peer.call(method, {"path": path.as_uri(), "sandbox": policy(place, *entries), **more})


async def test_files_are_written_inside_and_refused_outside(place: Path) -> None:
    data = {"dataBase64": base64.b64encode(b"new").decode()}
    async with serving() as (url, _), ready(url) as peer:
        assert await file_call(peer, place, "fs/writeFile", place / "ws" / "f", **data) == {}
        assert (place / "ws" / "f").read_bytes() == b"new"
        for path in (place / "outside" / "f", place / "ws" / ".git" / "f", Path("/etc/holdfast-test")):
            with pytest.raises(Refused) as refused:
                await file_call(peer, place, "fs/writeFile", path, **data)
            assert refused.value.code == -32603
            assert not path.exists()
        with pytest.raises(Refused):
            await file_call(peer, place, "fs/remove", place / "outside" / "secret")
        with pytest.raises(Refused):
            await file_call(peer, place, "fs/createDirectory", place / "outside" / "d")


async def test_a_link_does_not_lead_out(place: Path) -> None:
    (place / "ws" / "link").symlink_to(place / "outside")
    data = {"dataBase64": base64.b64encode(b"new").decode()}
    entries = (ROOT_READ, WORKSPACE, at(place / "outside" / "secret", "deny"))
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused):
            await file_call(peer, place, "fs/writeFile", place / "ws" / "link" / "f", **data)
        with pytest.raises(Refused):
            await file_call(peer, place, "fs/readFile", place / "ws" / "link" / "secret", *entries)
        assert not (place / "outside" / "f").exists()


@pytest.mark.parametrize("more", [{}, {"followSymlinks": False}])
async def test_a_confined_write_through_a_hard_link_keeps_the_link(
    place: Path, more: dict[str, object]
) -> None:
    one, other = place / "ws" / "one", place / "ws" / "other"
    one.write_text("old and longer", "utf-8")
    other.hardlink_to(one)
    before = one.stat()
    data = {"dataBase64": base64.b64encode(b"new").decode()}
    async with serving() as (url, _), ready(url) as peer:
        assert await file_call(peer, place, "fs/writeFile", one, **data, **more) == {}
    assert other.read_bytes() == b"new"
    assert (one.stat().st_ino, other.stat().st_nlink) == (before.st_ino, 2)


@pytest.mark.parametrize(
    "backend",
    [
        Backend.NAMESPACES,
        pytest.param(
            Backend.BWRAP,
            marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
        ),
        pytest.param(
            Backend.LANDLOCK,
            marks=pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock"),
        ),
    ],
)
async def test_a_hard_link_made_inside_opens_nothing_that_is_denied_or_read_only(
    place: Path, backend: Backend
) -> None:
    """On one file system, so that nothing but the policy is in the way."""
    key, guarded = place / "hidden" / "key", place / "outside" / "secret"
    key.parent.mkdir()
    key.write_text("key", "utf-8")
    entries: list[dict[str, Any]] = [ROOT_READ, at(key, "deny")]
    if backend is Backend.LANDLOCK:  # which denies by not listing
        seen = ("/usr", "/bin", "/lib", "/lib64", guarded.parent)
        entries = [at(Path(path), "read") for path in seen if Path(path).exists()]
    script = "cat {0}; ln {0} linked; cat linked; echo changed >> linked; ls; true"
    async with serving(choice=Choice(backend, degraded=True)) as (url, _), ready(url) as peer:
        for name, path, held in (("denied", key, b"key"), ("read-only", guarded, b"secret")):
            _, said = await run(
                peer, place, f"({script.format(path)}) 2>/dev/null; true", *entries, WORKSPACE
            )
            assert held not in said.encode() or name == "read-only", f"{name}: {said}"
            assert path.read_bytes() == held, name
            assert path.stat().st_nlink == 1, name
            (place / "ws" / "linked").unlink(missing_ok=True)


async def test_restricted_reading_shows_only_what_is_listed(place: Path) -> None:
    (place / "ws" / "f").write_text("mine", "utf-8")
    async with serving() as (url, _), ready(url) as peer:
        reply = await file_call(peer, place, "fs/readFile", place / "ws" / "f", WORKSPACE)
        assert base64.b64decode(reply["dataBase64"]) == b"mine"
        for path in (place / "outside" / "secret", Path("/etc/hostname"), Path("/usr/bin/env")):
            with pytest.raises(Refused) as refused:
                await file_call(peer, place, "fs/readFile", path, WORKSPACE)
            assert refused.value.code == -32004


async def test_a_file_denied_by_name_is_forbidden_not_missing(place: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        entries = (ROOT_READ, WORKSPACE, at(place / "outside" / "secret", "deny"))
        with pytest.raises(Refused) as refused:
            await file_call(peer, place, "fs/readFile", place / "outside" / "secret", *entries)
        assert refused.value.code == -32600


async def test_a_walk_sees_only_what_may_be_read(place: Path) -> None:
    (place / "ws" / "hidden").mkdir()
    (place / "ws" / "hidden" / "key").touch()
    (place / "ws" / "open").mkdir()
    options = {"maxDepth": 5, "maxDirectories": 99, "maxEntries": 99, "followDirectorySymlinks": False}
    entries = (ROOT_READ, WORKSPACE, at(place / "ws" / "hidden", "deny"))
    async with serving() as (url, _), ready(url) as peer:
        found = await file_call(peer, place, "fs/walk", place / "ws", *entries, options=options)
        names = {entry["path"].rsplit("/", 1)[1] for entry in found["entries"]}
        assert "open" in names
        assert "key" not in names


async def test_the_file_worker_sees_only_four_variables(place: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "SECRET": "x", "TMPDIR": "/tmp"}
    async with serving(environ=environ) as (url, _), ready(url) as peer:
        await file_call(
            peer, place, "fs/readFile", place / "outside" / "secret", ROOT_READ, at(place / "ws", "deny")
        )
        found = [Path(f"/proc/{pid}/environ").read_bytes() for pid in descendants_named("fsworker")]
        assert found
        assert all(b"SECRET" not in text for text in found)
        assert {name.split(b"=")[0] for text in found for name in text.split(b"\0") if name} <= {
            b"PATH",
            b"TMPDIR",
        }


async def test_a_stream_is_opened_inside_and_read_outside_the_sandbox(place: Path) -> None:
    (place / "ws" / "f").write_bytes(b"0123456789")
    async with serving() as (url, _), ready(url) as peer:
        await file_call(peer, place, "fs/open", place / "ws" / "f", WORKSPACE, handleId="h")
        block = await peer.call("fs/readBlock", {"handleId": "h", "offset": 3, "len": 4})
        assert base64.b64decode(block["chunk"]) == b"3456"
        with pytest.raises(Refused):
            await file_call(peer, place, "fs/open", place / "outside" / "secret", WORKSPACE, handleId="i")


def _put_skill(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n", "utf-8")


def _names(found: dict[str, Any]) -> list[str]:
    return [Path(skill["instructions"]["path"]).parent.name for skill in found["skills"]]


async def test_discovery_under_a_policy_follows_links_only_to_what_may_be_read(place: Path) -> None:
    root = place / "ws" / "plug"
    for folder in (root / "own", place / "shared" / "lent", place / "outside" / "hidden"):
        _put_skill(folder, folder.name)
    (root / "l1").symlink_to(place / "shared")
    (root / "l2").symlink_to(place / "outside")
    lent = (WORKSPACE, at(place / "shared", "read"))
    asked = [
        {"id": "plain", "path": root.as_uri()},
        {"id": "confined", "path": root.as_uri(), "sandbox": policy(place, *lent)},
        {"id": "alone", "path": root.as_uri(), "sandbox": policy(place, WORKSPACE)},
        {"id": "refused", "path": (place / "outside").as_uri(), "sandbox": policy(place, *lent)},
    ]
    async with serving() as (url, _), ready(url) as peer:
        found = (await peer.call("capabilityRoots/discoverV1", {"roots": asked}))["roots"]
    assert [one["id"] for one in found] == ["plain", "confined", "alone", "refused"]
    assert [sorted(_names(one)) for one in found] == [["hidden", "lent", "own"], ["lent", "own"], ["own"], []]
    assert [one["error"] is None for one in found] == [True, True, True, False]


async def test_installed_skills_are_found_under_a_policy_as_far_as_it_lets_one_see(place: Path) -> None:
    home = place / "home"
    _put_skill(home / ".codex" / "skills" / "mine", "mine")
    _put_skill(home / ".agents" / "skills" / "ours", "ours")
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    async with serving(environ=environ) as (url, _), ready(url) as peer:

        async def find(*entries: dict[str, Any]) -> list[str]:
            asked = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place, *entries)}
            return [one["name"] for one in (await peer.call("capabilities/discoverV2", asked))["skills"]]

        assert await find(ROOT_READ, WORKSPACE) == ["mine", "ours"]
        assert await find(WORKSPACE, at(home / ".agents", "read")) == ["ours"]
        assert await find(WORKSPACE) == []


async def test_protection_that_appears_later_is_honoured(place: Path) -> None:
    data = {"dataBase64": base64.b64encode(b"x").decode()}
    (place / "ws" / ".git").rmdir()
    async with serving() as (url, _), ready(url) as peer:
        assert await file_call(peer, place, "fs/writeFile", place / "ws" / "f", **data) == {}
        (place / "ws" / ".git").mkdir()
        with pytest.raises(Refused):
            await file_call(peer, place, "fs/writeFile", place / "ws" / ".git" / "config", **data)


async def test_swapping_a_directory_for_a_link_during_calls_reads_and_writes_nothing_outside(
    place: Path,
) -> None:
    inside, link, spare = place / "ws" / "d", place / "ws" / "l", place / "ws" / "spare"
    inside.mkdir()
    (inside / "secret").write_text("inside", "utf-8")
    link.symlink_to(place / "outside")
    stop = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            os.rename(inside, spare)
            os.rename(link, inside)
            os.rename(inside, link)
            os.rename(spare, inside)
            swaps += 1

    data = {"dataBase64": base64.b64encode(b"new").decode()}
    entries = (ROOT_READ, WORKSPACE, at(place / "outside", "deny"))
    async with serving() as (url, _), ready(url) as peer:
        await file_call(peer, place, "fs/readFile", inside / "secret", *entries)
        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            calls = 0
            while calls < 400 or swaps < 5000:
                calls += 1
                try:
                    reply = await file_call(peer, place, "fs/readFile", inside / "secret", *entries)
                    assert base64.b64decode(reply["dataBase64"]) == b"inside"
                except Refused:
                    pass
                with contextlib.suppress(Refused):
                    await file_call(peer, place, "fs/writeFile", inside / "w", *entries, **data)
        finally:
            stop.set()
            await asyncio.to_thread(swapper.join)
    assert not (place / "outside" / "w").exists()
    assert (place / "outside" / "secret").read_text("utf-8") == "secret"


async def test_a_protected_name_that_a_command_creates_is_moved_aside_and_reported(place: Path) -> None:
    async with serving() as (url, _), ready(url, holdfast=True) as peer:
        (place / "ws" / ".git").rmdir()
        more = {"cwd": (place / "ws").as_uri(), "sandbox": policy(place)}
        await peer.start("p", "mkdir .git && echo hook > .git/config", **more)
        events = await peer.closed("p")
        [end] = [event["params"] for event in events if event["method"] == "process/exited"]
        assert end["sandboxDenied"] is True
        assert end["denial"]["path"] == f"{place}/ws/.git"
        assert not (place / "ws" / ".git").exists()
        [aside] = (place / "ws").glob(".git.set-aside-*")
        assert (aside / "config").read_text("utf-8") == "hook\n"


async def test_a_protected_name_cannot_be_created_by_a_file_call_under_any_name(place: Path) -> None:
    (place / "ws" / ".git").rmdir()
    (place / "ws" / "alias").symlink_to(place / "ws")
    async with serving() as (url, _), ready(url) as peer:
        for path in (place / "ws" / ".git", place / "ws" / "alias" / ".git"):
            with pytest.raises(Refused) as refused:
                await file_call(peer, place, "fs/createDirectory", path)
            assert refused.value.code == -32603
            assert not (place / "ws" / ".git").exists()
