"""One worker speaks for the task of another: with its grant, with its envelopes, or by its socket.

The token of a run is in a directory that only its own sandbox sees; a channel takes envelopes of its own task
alone; an envelope that comes twice happens once.
"""

import json
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.errors import OperationFailed
from holdfast.handoff import envelope, outbox
from holdfast.handoff.broker import Broker
from holdfast.home import runtime_directories
from holdfast.local import rundirs
from tests.support.dispatch import Yard, fresh_yard_fixture, own_yard
from tests.support.handoff import KEY, started
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["fresh_yard_fixture"]

HOLDFAST = shlex.join([sys.executable, "-P", "-m", "holdfast"])


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


async def test_a_worker_completes_another_s_task(yard: Yard) -> None:
    """While the other runs, by everything of it that can be found on the disk."""
    victim_place, thief_place = yard.folder / "b", yard.folder / "a"
    for place in (victim_place, thief_place):
        place.mkdir()
    victim = yard.create(
        f"until [ -e {thief_place}/done ]; do sleep 0.05; done; exit 1",
        workspace_kind="dir",
        workspace=str(victim_place),
        max_attempts=1,
    )
    laid = victim_place / ".holdfast" / "run.json"
    [runtime, *_] = [Path(top) / "runs" for top in runtime_directories()]
    theft = (
        f"until [ -e {laid} ]; do sleep 0.05; done\n"
        f"HOLDFAST_RUN={laid} {HOLDFAST} handoff complete stolen\n"
        f"cat {laid} > seen.json\n"
        f'grant=$(sed \'s/.*"place":"\\([^"]*\\)".*/\\1/\' {laid}); cat $grant > grant.txt 2>&1\n'
        f"ls {runtime} > runs.txt 2>&1\n"
        f"{HOLDFAST} handoff comment mine > own.txt 2>&1\n"
        "touch done\n"
    )
    thief = yard.create(theft, workspace_kind="dir", workspace=str(thief_place))
    async with yard.dispatching(once=True, most=2) as serving:
        await yard.over(serving)
    assert yard.store.task(victim.id).status is not TaskStatus.DONE
    assert yard.store.task(thief.id).status is TaskStatus.DONE
    assert [comment.body for comment in yard.store.show(thief.id).comments] == ["mine"]  # its own grant works
    seen = json.loads((thief_place / "seen.json").read_text("utf-8"))
    assert seen["token"] == ""
    assert "token" not in (thief_place / "grant.txt").read_text("utf-8")
    [own] = yard.store.runs(thief.id)
    assert (thief_place / "runs.txt").read_text("utf-8").split() in ([], [own.id]) or "denied" in (
        thief_place / "runs.txt"
    ).read_text("utf-8")


async def test_whoever_has_the_token_may_speak_with_it() -> None:
    """The control: the same act with the victim's whole grant completes its task."""
    async with own_yard() as yard:
        task, grant = started(yard.store, yard.folder / "ws")
        sealed = envelope.seal(grant, "complete", {"summary": "stolen"}, id="e")
        assert Broker(yard.store, KEY, task.id).carry_out(sealed).error is None
        assert yard.store.task(task.id).status is TaskStatus.DONE


@pytest.mark.parametrize("how", ["forged", "cross-run", "other verb", "other words", "without token"])
async def test_an_envelope_that_the_run_did_not_sign_is_refused(how: str) -> None:
    async with own_yard() as yard:
        task, grant = started(yard.store, yard.folder / "ws")
        other, theirs = started(yard.store, yard.folder / "other")
        sealed = envelope.seal(grant, "complete", {"summary": "x"}, id="e")
        letter = {
            "forged": msgspec.structs.replace(
                envelope.seal(theirs, "complete", {"summary": "x"}, id="e"), run=grant.run
            ),
            "cross-run": envelope.seal(theirs, "complete", {"summary": "x"}, id="e"),
            "other verb": msgspec.structs.replace(sealed, verb="request_review"),
            "other words": msgspec.structs.replace(sealed, args=msgspec.Raw(b'{"summary":"y"}')),
            "without token": envelope.seal(
                envelope.without_token(grant, ""), "complete", {"summary": "x"}, id="e"
            ),
        }[how]
        place = outbox.place_of(yard.folder / "ws")
        (place / "e.json").write_bytes(envelope.encode(letter))
        outbox.ingest(yard.folder / "ws", Broker(yard.store, KEY, task.id).carry_out)
        [answer] = (place.parent / "answers").iterdir()
        assert json.loads(answer.read_bytes())["error"]["kind"] == "TokenRefused"
        assert {yard.store.task(one.id).status for one in (task, other)} == {TaskStatus.RUNNING}


async def test_an_envelope_that_is_sent_again_happens_once() -> None:
    async with own_yard() as yard:
        task, grant = started(yard.store, yard.folder / "ws")
        sealed = envelope.seal(grant, "comment", {"body": "once"}, id="e")
        broker = Broker(yard.store, KEY, task.id)
        first = broker.carry_out(sealed)
        assert broker.carry_out(sealed) == first
        assert len(yard.store.show(task.id).comments) == 1


def test_the_directory_of_a_run_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may have planted it: a link, or a directory that others can enter."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(rundirs, "runtime_directories", lambda: (str(tmp_path / "holdfast"),))
    made = rundirs.prepare("r_1")
    assert made.stat().st_mode & 0o777 == 0o700
    rundirs.remove("r_1")
    assert not made.exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (made.parent / "r_1").symlink_to(elsewhere)
    with pytest.raises(OperationFailed):
        rundirs.prepare("r_1")
    (made.parent / "r_1").unlink()
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    with pytest.raises(OperationFailed):
        rundirs.prepare("r_1")
    with pytest.raises(OperationFailed):
        rundirs.prepare("../r_1")
