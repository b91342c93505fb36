"""A worker's report over a real socket and a real outbox, honest and hostile."""

import asyncio
import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import JsonObject
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.errors import HoldfastError, NotFound, OperationFailed, StartupError, Unreachable, UsageError
from holdfast.handoff import broker as broker_module
from holdfast.handoff import envelope, outbox
from holdfast.handoff.broker import MAX_SHOWN, Broker, listen
from holdfast.handoff.envelope import MAX_ENVELOPE, MAX_LINE, VERBS, Envelope, Grant, HandoffAnswer
from holdfast.handoff.sender import Sender
from holdfast.local import homekey, peers
from holdfast.wire import rpc
from tests.support.boards import SettableClock, claimed, made
from tests.support.handoff import KEY, WAIT_S, asked, grant_of, serving, started
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

SAID: JsonObject = {"summary": "done", "metadata": {"files": 3}}


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The databases themselves are tested elsewhere."""
    return str(tmp_path / "board.db")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with open_store(address) as opened:
        opened.create_board("b")
        yield opened


@pytest.fixture
def broker(store: Store) -> Broker:
    return Broker(store, KEY)


def kind(answer: HandoffAnswer) -> str | None:
    return None if answer.error is None else answer.error.kind


def put(workspace: Path, name: str, data: bytes) -> Path:
    place = outbox.place_of(workspace) / name
    place.write_bytes(data)
    return place


def answer_in(workspace: Path, id: str) -> HandoffAnswer:
    return msgspec.json.decode(
        (workspace / ".holdfast" / "answers" / f"{id}.json").read_bytes(), type=HandoffAnswer
    )


def told(result: JsonObject | None, what: str) -> dict[str, object]:
    assert result is not None
    found = result[what]
    assert isinstance(found, dict)
    return found


# --- what a worker says arrives


@pytest.mark.parametrize("channel", ["socket", "outbox"])
async def test_every_verb_reaches_the_board_by_every_channel(
    channel: str, store: Store, address: str, tmp_path: Path
) -> None:
    ws, sock = tmp_path / "ws", tmp_path / "s"
    task, _ = started(store, ws, sock)
    sender = Sender.find(ws, {})

    async def say(verb: str, args: JsonObject) -> JsonObject | None:
        answer = await asked(lambda: sender.send(verb, args, channel=channel, wait_s=WAIT_S))  # type: ignore[arg-type]  # both are
        assert answer.error is None, verb
        return answer.result

    async with serving(address, sock, [ws]):
        assert told(told(await say("show", {}), "detail"), "task")["id"] == task.id
        assert told(await say("heartbeat", {"note": "half way"}), "run")["note"] == "half way"
        assert told(await say("comment", {"body": "look"}), "comment")["number"] == 1
        child = told(await say("create", {"title": "next"}), "task")
        assert child["status"] == "todo"
        other = {"parent": made(store).id, "child": child["id"]}
        assert told(await say("link", other), "task")["open_parents"] == 2
        assert told(await say("attach", {"name": "a", "data": b"\0\1"}), "file")["size"] == 2
        assert told(await say("complete", SAID), "task")["status"] == "done"
    [run] = store.runs(task.id)
    assert (run.outcome, run.summary, run.metadata) == ("completed", "done", {"files": 3})
    assert store.task(str(child["id"])).open_parents == 1
    assert store.file(task.id, None, "a") == b"\0\1"
    assert list((ws / ".holdfast" / "outbox").iterdir()) == []


@pytest.mark.parametrize(
    ("verb", "args", "status"),
    [
        ("block", {"question": "which?", "options": ["a"], "waiting_for": "ann"}, TaskStatus.WAITING_HUMAN),
        ("request_review", SAID, TaskStatus.REVIEW),
    ],
)
def test_other_ends_of_a_run_are_told_as_well(
    verb: str, args: JsonObject, status: TaskStatus, store: Store, broker: Broker, tmp_path: Path
) -> None:
    task, grant = started(store, tmp_path / "ws")
    assert kind(broker.carry_out(envelope.seal(grant, verb, args, id="e"))) is None
    assert store.task(task.id).status is status


def test_the_same_envelope_gets_the_same_answer_and_another_end_is_a_conflict(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    task, grant = started(store, tmp_path / "ws")
    letter = envelope.seal(grant, "complete", SAID, id="e")
    first = broker.carry_out(letter)
    assert first.error is None
    assert [broker.carry_out(letter) for _ in range(3)] == [first] * 3
    assert (
        kind(broker.carry_out(envelope.seal(grant, "complete", {"summary": "other"}, id="e"))) == "Conflict"
    )
    assert kind(broker.carry_out(envelope.seal(grant, "block", {"question": "?"}, id="f"))) == "StaleRun"
    assert store.task(task.id).result == "done"


def test_a_task_with_too_much_said_about_it_is_shown_with_the_newest(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    task, grant = started(store, tmp_path / "ws")
    for number in range(30):
        store.comment(task.id, f"{number} " + "x" * 250_000)
    detail = told(broker.carry_out(envelope.seal(grant, "show", {}, id="e")).result, "detail")
    comments = detail["comments"]
    assert isinstance(comments, list)
    assert len(msgspec.json.encode(detail)) <= MAX_SHOWN
    assert comments[-1]["body"].startswith("29 ")


# --- where the sender finds its run, and what it does when nobody is there


def test_a_run_is_found_above_the_directory_or_by_its_variable(store: Store, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    _, grant = started(store, ws)
    deep = ws / "a" / "b"
    deep.mkdir(parents=True)
    assert Sender.find(deep, {}).grant == grant
    named = {"HOLDFAST_RUN": str(ws / ".holdfast" / "run.json")}
    assert Sender.find(tmp_path, named).grant == grant
    with pytest.raises(NotFound):
        Sender.find(tmp_path, {})
    with pytest.raises(NotFound):
        Sender.find(deep, {"HOLDFAST_RUN": str(tmp_path / "none.json")})


def test_a_grant_from_another_machine_means_the_outbox_beside_it(store: Store, tmp_path: Path) -> None:
    _, grant = started(store, tmp_path / "ws")
    place = tmp_path / "far" / ".holdfast"
    (place / "outbox").mkdir(parents=True)
    far = msgspec.structs.replace(grant, outbox="", socket="")
    (place / "run.json").write_bytes(msgspec.json.encode(far))
    found = Sender.find(tmp_path / "far", {})
    assert found.grant.outbox == str(place / "outbox")
    assert found.send("heartbeat", {}, wait_s=0.0).result == {"accepted": "outbox"}
    assert len(list((place / "outbox").iterdir())) == 1


@pytest.mark.parametrize("text", ["", "{}", "[", '{"schema":2}'])
def test_a_damaged_grant_is_said_to_be_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text, "utf-8")
    with pytest.raises(UsageError):
        Sender.find(tmp_path, {"HOLDFAST_RUN": str(tmp_path / "run.json")})


def test_what_nobody_reads_is_accepted_and_read_later(store: Store, broker: Broker, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    task, grant = started(store, ws, tmp_path / "nobody")
    answer = Sender(grant).send("complete", SAID, id="e", wait_s=0)
    assert (answer.result, answer.error) == ({"accepted": "outbox"}, None)
    assert store.task(task.id).status is TaskStatus.RUNNING
    assert outbox.ingest(ws, broker.carry_out) == 1
    assert store.task(task.id).status is TaskStatus.DONE
    assert Sender(grant).send("complete", SAID, id="e", wait_s=0).result == answer_in(ws, "e").result


def test_a_socket_that_was_asked_for_and_is_not_there_is_an_error(store: Store, tmp_path: Path) -> None:
    for sock in (None, tmp_path / "nobody"):
        _, grant = started(store, tmp_path / "ws", sock)
        with pytest.raises(Unreachable):
            Sender(grant).send("complete", SAID, channel="socket")
    assert list(outbox.place_of(tmp_path / "ws").iterdir()) == []


def test_when_no_channel_takes_it_that_is_an_error(store: Store, tmp_path: Path) -> None:
    _, grant = started(store, tmp_path / "ws")
    with pytest.raises(Unreachable):
        Sender(msgspec.structs.replace(grant, outbox=str(tmp_path / "gone"))).send("complete", SAID)


@pytest.mark.parametrize(
    "farewell",
    [
        b"",
        b"half an answ",
        b'{"id":"other","result":{"id":"other"}}\n',
        b'{"id":"e","result":{"id":7}}\n',
        b'{"id":"e","error":{"code":-32603,"message":"busy"}}\n',
        b'{"id":"","error":{"code":-32600,"kind":"RemoteProtocolError","message":"no"}}\n',  # an older one
        b"nonsense\n",
    ],
)
def test_a_service_that_dies_before_its_answer_leaves_the_envelope_to_the_outbox(
    farewell: bytes, store: Store, tmp_path: Path
) -> None:
    ws, sock = tmp_path / "ws", tmp_path / "s"
    _, grant = started(store, ws, sock)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sock))
        listener.listen(1)
        listener.settimeout(WAIT_S)

        def die() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(WAIT_S)
                peer.recv(1 << 20)
                peer.sendall(farewell)

        dying = threading.Thread(target=die)
        dying.start()
        answer = Sender(grant).send("complete", SAID, id="e", wait_s=0.5)
        dying.join(WAIT_S)
    assert answer.result == {"accepted": "outbox"}
    written = envelope.decode((outbox.place_of(ws) / "e.json").read_bytes())
    assert envelope.check(written, grant.token)


def test_bad_arguments_are_refused_before_anything_is_sent(store: Store, tmp_path: Path) -> None:
    _, grant = started(store, tmp_path / "ws")
    bad: list[tuple[str, JsonObject]] = [("complete", {}), ("claim", {}), ("complete", {"summary": "\0"})]
    for verb, args in bad:
        with pytest.raises(UsageError):
            Sender(grant).send(verb, args)
    assert list(outbox.place_of(tmp_path / "ws").iterdir()) == []


# --- who may say it


def forgeries(grant: Grant, other: Grant) -> dict[str, Envelope]:
    """Envelopes that must change nothing, by what must refuse them."""
    good = envelope.seal(grant, "complete", SAID, id="e")
    replace = msgspec.structs.replace
    return {
        "changed": replace(good, args=msgspec.Raw(b'{"summary":"forged"}')),
        "no mac": replace(good, mac=""),
        "another run's token": replace(
            envelope.seal(replace(grant, token=other.token), "complete", SAID, id="e")
        ),
        "another run's name": replace(good, run=other.run, generation=other.generation),
        "another key": envelope.seal(
            replace(grant, token=envelope.mint(b"x" * 32, "b", grant.task, grant.run, grant.generation)),
            *("complete", SAID),
            id="e",
        ),
        "no run": envelope.seal(replace(grant, run="r_none"), "complete", SAID, id="e"),
        "another generation": envelope.seal(
            replace(grant, generation=grant.generation + 1), "complete", SAID, id="e"
        ),
    }


@pytest.mark.parametrize(
    ("forged", "refused"),
    [
        ("changed", "TokenRefused"),
        ("no mac", "TokenRefused"),
        ("another run's token", "TokenRefused"),
        ("another run's name", "TokenRefused"),
        ("another key", "TokenRefused"),
        ("no run", "TokenRefused"),
        ("another generation", "StaleRun"),
    ],
)
def test_a_forged_envelope_changes_nothing_by_any_channel(
    forged: str, refused: str, store: Store, broker: Broker, tmp_path: Path
) -> None:
    ws = tmp_path / "ws"
    task, grant = started(store, ws)
    other_task, other = started(store, tmp_path / "other")
    letter = forgeries(grant, other)[forged]
    before = store.events("b")
    answer = broker.carry_out(letter)
    assert kind(answer) == refused
    for secret in (grant.token, other.token):
        assert secret.encode() not in msgspec.json.encode(answer)
    put(ws, "e.json", envelope.encode(letter))
    assert outbox.ingest(ws, broker.carry_out) == 1
    assert answer_in(ws, "e") == answer
    assert store.events("b") == before
    assert [store.task(id).status for id in (task.id, other_task.id)] == [TaskStatus.RUNNING] * 2


def test_a_run_that_was_replaced_is_refused_with_every_verb(address: str, tmp_path: Path) -> None:
    clock = SettableClock()
    with open_store(address, clock=clock) as store:
        store.create_board("b")
        broker = Broker(store, KEY)
        task, old = started(store, tmp_path / "ws")
        clock.now_ms += 3_600_000
        store.expire("b")
        clock.now_ms += 3_600_000
        _, run = claimed(store, task.id)
        assert run.generation == old.generation + 1
        said: dict[str, JsonObject] = {
            "show": {},
            "heartbeat": {},
            "link": {"parent": task.id, "child": task.id},
            "attach": {"name": "late", "data": b""},
            "comment": {"body": "late"},
            "create": {"title": "late"},
            "complete": SAID,
            "block": {"question": "late"},
            "request_review": SAID,
        }
        for verb, args in said.items():
            assert kind(broker.carry_out(envelope.seal(old, verb, args, id=verb))) == "StaleRun"
        assert said.keys() == VERBS.keys()
        assert store.task(task.id).run_id == run.id
        assert store.show(task.id).comments == []
        assert len(store.page("b").tasks) == 1
        new = grant_of(run, tmp_path / "ws")
        assert kind(broker.carry_out(envelope.seal(new, "complete", SAID, id="e"))) is None


async def test_the_socket_answers_what_is_no_envelope_and_goes_on(
    store: Store, address: str, tmp_path: Path
) -> None:
    sock = tmp_path / "s"
    _, grant = started(store, tmp_path / "ws", sock)
    async with asyncio.timeout(WAIT_S), serving(address, sock):
        reader, writer = await asyncio.open_unix_connection(sock)
        letter = envelope.seal(grant, "complete", SAID, id="e")
        other = rpc.request("e", "handIn", msgspec.structs.replace(letter, v=2))
        old = envelope.encode(letter)  # as it was sent by older versions, which then have their outbox
        for line in (b"{}", b"[" * 1000, b"\xff\xfe", other, old):
            writer.write(line + b"\n")
            assert json.loads(await reader.readline())["error"]["data"]["kind"] == "RemoteProtocolError"
        good = rpc.request("e", "handIn", letter)
        writer.write(good + b"\n" + good + b"\n")
        first = await reader.readline()
        assert first == await reader.readline()
        assert json.loads(first)["result"]["result"]["task"]["status"] == "done"
        writer.write(b"x" * (MAX_LINE + 10) + b"\n")
        assert json.loads(await reader.readline())["error"]["data"]["kind"] == "RemoteProtocolError"
        assert await reader.read() == b""
        writer.close()
        assert sock.stat().st_mode & 0o777 == 0o600
    assert not sock.exists()


async def test_clients_are_counted_and_one_too_many_has_the_outbox(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "MAX_CLIENTS", 2)
    sock = tmp_path / "s"
    _, grant = started(store, tmp_path / "ws", sock)
    async with asyncio.timeout(WAIT_S), serving(address, sock):
        held = [await asyncio.open_unix_connection(sock) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"{}\n")
            await reader.readline()
        answer = await asked(lambda: Sender(grant).send("comment", {"body": "hello"}, wait_s=0.2))
        assert answer.result == {"accepted": "outbox"}
        for _, writer in held:
            writer.close()


async def test_a_stranger_is_not_listened_to(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock = tmp_path / "s"
    task, grant = started(store, tmp_path / "ws", sock)
    monkeypatch.setattr(peers, "uid_of_unix_peer", lambda _sock: os.getuid() + 1)
    async with asyncio.timeout(WAIT_S), serving(address, sock):
        with pytest.raises(Unreachable):
            await asked(lambda: Sender(grant).send("complete", SAID, channel="socket"))
    assert store.task(task.id).status is TaskStatus.RUNNING


async def test_a_service_takes_the_place_of_one_that_was_killed_and_names_a_place_that_is_none(
    store: Store, address: str, tmp_path: Path
) -> None:
    sock = tmp_path / "s"
    _, grant = started(store, tmp_path / "ws", sock)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(sock))
    async with asyncio.timeout(WAIT_S), serving(address, sock):
        assert (await asked(lambda: Sender(grant).send("show", {}, channel="socket"))).error is None
    for place in (tmp_path / "none" / "s", tmp_path / ("x" * 200)):
        with pytest.raises(StartupError):
            async with AsyncStore.open(address) as board, listen(board, KEY, place):
                pass


async def test_a_store_that_cannot_be_used_is_no_answer_and_nothing_is_lost(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, sock = tmp_path / "ws", tmp_path / "s"
    task, grant = started(store, ws, sock)

    def down(*_: object, **__: object) -> None:
        raise Unreachable("busy")

    with monkeypatch.context() as broken:
        broken.setattr(Store, "complete", down)
        async with asyncio.timeout(WAIT_S), serving(address, sock):
            answer = await asked(lambda: Sender(grant).send("complete", SAID, id="e", wait_s=0.2))
        assert answer.result == {"accepted": "outbox"}
        with pytest.raises(Unreachable):
            outbox.ingest(ws, Broker(store, KEY).carry_out)
    assert outbox.ingest(ws, Broker(store, KEY).carry_out) == 1
    assert store.task(task.id).status is TaskStatus.DONE


def test_what_we_fail_on_ourselves_is_answered_without_details_and_kept(
    store: Store, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = tmp_path / "ws"
    _, grant = started(store, ws)

    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError(grant.token)

    monkeypatch.setattr(Store, "complete", fault)
    Sender(grant).send("complete", SAID, id="e", wait_s=0)
    assert outbox.ingest(ws, broker.carry_out) == 1
    answer = answer_in(ws, "e")
    assert kind(answer) == "OperationFailed"
    assert grant.token.encode() not in msgspec.json.encode(answer)
    assert [entry.name for entry in outbox.place_of(ws).iterdir()] == ["e.bad"]


# --- files of a worker that means harm


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"x" * (MAX_ENVELOPE + 1), b"\xff"],
    ids=["empty", "half", "oversized", "no text"],
)
def test_a_file_that_is_no_envelope_is_answered_and_kept_once(
    data: bytes, store: Store, broker: Broker, tmp_path: Path
) -> None:
    ws = tmp_path / "ws"
    task, _ = started(store, ws)
    for _ in range(2):
        put(ws, "e.json", data)
        assert outbox.ingest(ws, broker.carry_out) == 1
        assert outbox.ingest(ws, broker.carry_out) == 0
    assert kind(answer_in(ws, "e")) == "RemoteProtocolError"
    assert [entry.name for entry in outbox.place_of(ws).iterdir()] == ["e.bad"]
    assert store.task(task.id).status is TaskStatus.RUNNING


def test_every_file_that_comes_to_nothing_is_told_with_its_reason(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    ws = tmp_path / "ws"
    _, grant = started(store, ws)
    good = envelope.seal(grant, "comment", {"body": "hello"}, id="good")
    forged = msgspec.structs.replace(envelope.seal(grant, "complete", SAID, id="forged"), generation=7)
    put(ws, "good.json", envelope.encode(good))
    put(ws, "half.json", b"{")
    put(ws, "forged.json", envelope.encode(forged))
    put(ws, "my report.json", b"{}")
    put(ws, ".half-written.json", b"{")
    put(ws, "notes.txt", b"")
    told: dict[str, str] = {}

    def refused(file: str, reason: str) -> None:
        assert told.setdefault(file, reason) is reason, "told twice"

    for _ in range(2):
        outbox.ingest(ws, broker.carry_out, refused)
    assert told.keys() == {"half.json", "forged.json", "my report.json"}
    assert all(told.values())


def test_a_file_whose_refusal_cannot_be_told_stays(store: Store, broker: Broker, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    started(store, ws)
    put(ws, "half.json", b"{")

    def fail(_file: str, _reason: str) -> None:
        raise Unreachable("the disk is full")

    with pytest.raises(Unreachable):
        outbox.ingest(ws, broker.carry_out, fail)
    assert outbox.ingest(ws, broker.carry_out) == 1


def test_an_envelope_under_another_name_is_not_answered_there(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    ws = tmp_path / "ws"
    task, grant = started(store, ws)
    put(ws, "f.json", envelope.encode(envelope.seal(grant, "complete", SAID, id="e")))
    outbox.ingest(ws, broker.carry_out)
    assert kind(answer_in(ws, "f")) == "RemoteProtocolError"
    assert store.task(task.id).status is TaskStatus.RUNNING


def test_links_and_pipes_in_an_outbox_are_not_followed(store: Store, broker: Broker, tmp_path: Path) -> None:
    ws, secret = tmp_path / "ws", tmp_path / "secret.json"
    task, grant = started(store, ws)
    good = envelope.encode(envelope.seal(grant, "complete", SAID, id="link"))
    secret.write_bytes(good)
    folder = outbox.place_of(ws)
    (folder / "link.json").symlink_to(secret)
    (folder / "dangling.json").symlink_to(tmp_path / "none")
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    pipe = os.open(folder / "pipe.json", os.O_RDWR)
    os.write(pipe, envelope.encode(envelope.seal(grant, "complete", SAID, id="pipe")))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.json"))
    assert outbox.ingest(ws, broker.carry_out) == 5
    os.close(pipe)
    for name in ("link", "dangling", "folder", "pipe", "socket"):
        assert kind(answer_in(ws, name)) == "RemoteProtocolError"
    assert secret.read_bytes() == good
    assert not (tmp_path / "none").exists()
    assert store.task(task.id).status is TaskStatus.RUNNING


def test_answers_are_not_written_through_links(store: Store, broker: Broker, tmp_path: Path) -> None:
    ws, outside = tmp_path / "ws", tmp_path / "outside"
    _, grant = started(store, ws)
    outside.mkdir()
    (outside / "kept").write_text("kept", "utf-8")
    answers = ws / ".holdfast" / "answers"
    (answers / "e.json").symlink_to(outside / "kept")
    (answers / "f.json").mkdir()
    for id in ("e", "f"):
        put(ws, f"{id}.json", envelope.encode(envelope.seal(grant, "comment", {"body": id}, id=id)))
    assert outbox.ingest(ws, broker.carry_out) == 2
    assert [kind(answer_in(ws, id)) for id in ("e", "f")] == [None, None]
    assert (outside / "kept").read_text("utf-8") == "kept"
    for entry in answers.iterdir():
        entry.unlink() if entry.is_file() else entry.rmdir()
    answers.rmdir()
    answers.symlink_to(outside)
    put(ws, "g.json", envelope.encode(envelope.seal(grant, "comment", {"body": "g"}, id="g")))
    assert outbox.ingest(ws, broker.carry_out) == 1
    assert kind(answer_in(ws, "g")) is None
    assert [entry.name for entry in outside.iterdir()] == ["kept"]


@pytest.mark.parametrize("which", [".holdfast", ".holdfast/outbox"])
def test_a_directory_that_was_replaced_by_a_link_is_not_entered(
    which: str, store: Store, broker: Broker, tmp_path: Path
) -> None:
    ws, elsewhere = tmp_path / "ws", tmp_path / "elsewhere"
    task, grant = started(store, ws)
    other_task, other = started(store, elsewhere)
    put(elsewhere, "e.json", envelope.encode(envelope.seal(other, "complete", SAID, id="e")))
    (ws / which).rename(tmp_path / "moved")
    (ws / which).symlink_to(elsewhere / which)
    assert outbox.ingest(ws, broker.carry_out) == 0
    assert store.task(other_task.id).status is TaskStatus.RUNNING
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    outbox.lay_out(ws, grant)
    assert not (ws / which).is_symlink()
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before
    Sender(grant).send("complete", SAID, id="e", wait_s=0)
    assert outbox.ingest(ws, broker.carry_out) == 1
    assert store.task(task.id).status is TaskStatus.DONE


def test_laying_out_replaces_what_is_in_the_way_and_keeps_what_waits(store: Store, tmp_path: Path) -> None:
    ws, outside = tmp_path / "ws", tmp_path / "outside.json"
    _, grant = started(store, ws)
    Sender(grant).send("complete", SAID, id="e", wait_s=0)
    own = ws / ".holdfast"
    (own / "run.json").unlink()
    (own / "run.json").symlink_to(outside)
    (own / ".gitignore").unlink()
    (own / ".gitignore").mkdir()
    (own / "answers").rmdir()
    (own / "answers").write_text("a file", "utf-8")
    assert outbox.lay_out(ws, grant) == own / "run.json"
    assert not outside.exists()
    assert Sender.find(ws, {}).grant == grant
    assert (own / "run.json").stat().st_mode & 0o777 == 0o600
    assert (own / ".gitignore").read_text("utf-8") == "*\n"
    assert [entry.name for entry in (own / "outbox").iterdir()] == ["e.json"]
    (tmp_path / "link").symlink_to(ws)
    for workspace in (tmp_path / "link", tmp_path / "none", outside):
        with pytest.raises(OperationFailed):
            outbox.lay_out(workspace, grant)


def test_an_envelope_that_cannot_be_opened_just_now_is_not_taken_for_a_bad_one(
    store: Store, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = tmp_path / "ws"
    task, grant = started(store, ws)
    Sender(grant).send("complete", SAID, id="e", wait_s=0)
    real = os.open

    def exhausted(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if path == "e.json":
            raise OSError(errno.EMFILE, "too many open files")
        return real(path, flags, dir_fd=dir_fd)

    with monkeypatch.context() as short:
        short.setattr(os, "open", exhausted)
        assert outbox.ingest(ws, broker.carry_out) == 0
    assert outbox.ingest(ws, broker.carry_out) == 1
    assert store.task(task.id).status is TaskStatus.DONE


def test_envelopes_are_read_in_the_order_in_which_they_were_put(
    store: Store, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_AT_ONCE", 2)
    ws = tmp_path / "ws"
    task, grant = started(store, ws)
    for number, id in enumerate(("z", "m", "a")):
        place = put(ws, f"{id}.json", envelope.encode(envelope.seal(grant, "comment", {"body": id}, id=id)))
        os.utime(place, ns=(number, number))
    assert [outbox.ingest(ws, broker.carry_out) for _ in range(3)] == [2, 1, 0]
    assert [comment.body for comment in store.show(task.id).comments] == ["z", "m", "a"]


def test_a_crash_between_carrying_out_and_answering_repeats_and_changes_nothing(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    ws = tmp_path / "ws"
    task, grant = started(store, ws)
    Sender(grant).send("complete", SAID, id="e", wait_s=0)

    def crash(letter: Envelope) -> HandoffAnswer:
        broker.carry_out(letter)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.ingest(ws, crash)
    assert store.task(task.id).status is TaskStatus.DONE
    events = store.events("b")
    assert outbox.ingest(ws, broker.carry_out) == 1
    assert answer_in(ws, "e").error is None
    assert store.events("b") == events


# --- the key


def test_a_key_is_made_once_and_is_its_owner_s_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made_first = homekey.load(home)
    assert homekey.load(home) == made_first
    place = home / "handoff.key"
    assert place.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in home.iterdir()] == ["handoff.key"]
    place.chmod(0o640)
    with pytest.raises(StartupError):
        homekey.load(home)
    place.chmod(0o600)
    place.write_bytes(b"short")
    with pytest.raises(StartupError):
        homekey.load(home)
    place.unlink()
    place.symlink_to(tmp_path / "other")
    with pytest.raises(HoldfastError):
        homekey.load(home)


def test_of_two_who_make_a_key_at_once_both_get_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = homekey._make

    def raced(home: Path, name: str) -> None:
        real(home, name)
        real(home, name)

    monkeypatch.setattr(homekey, "_make", raced)
    first = homekey.load(tmp_path)
    assert homekey.load(tmp_path) == first


async def test_it_ends_while_somebody_is_being_answered_and_what_was_said_counts(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock = tmp_path / "s"
    task, grant = started(store, tmp_path / "ws", sock)
    begun, go = threading.Event(), threading.Event()

    def slowly(broker: Broker, letter: Envelope) -> HandoffAnswer:
        begun.set()
        go.wait(WAIT_S)
        return carry_out(broker, letter)

    carry_out = Broker.carry_out
    monkeypatch.setattr(Broker, "carry_out", slowly)
    async with asyncio.timeout(WAIT_S):
        async with serving(address, sock):
            sending = asyncio.create_task(
                asyncio.to_thread(Sender(grant).send, "complete", SAID, channel="socket")
            )
            sending.add_done_callback(lambda _: go.set())  # the service has hung up
            await asyncio.to_thread(begun.wait, WAIT_S)
        with pytest.raises(Unreachable):
            await sending
    assert store.task(task.id).status is TaskStatus.DONE
