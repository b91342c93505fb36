"""What is kept of every worker on disk: its record, its evidence, its output.

    HOME/
      exec.sock supervisor.sock supervisor.lock *.log
      workers/ID/
        record.json      what was asked and what became of it, replaced whole
        baseline.json    what was in its directory when it, or the one it replaces, was started
        errand.json      the prompt of one that is led over ACP, for whoever takes it over
        wish.json        what was asked for, to start it again with one more grant
        evidence.jsonl   the newest evidence; the file before it is evidence.jsonl.1
        output.log       what it said, as it said it; likewise
        login.json       of one that has a login which is renewed: who renews it, and no token
        equivalence.json what differs for it from the host
        carried.json     of one on another machine: what was sent there
        carried/         the objects of that, and of what came back
        read             the number of the last output event that is in there
        state/           where the CLI keeps its own state

A record is on disk before its worker is started. No value of an environment variable is ever in it.
"""

import contextlib
import errno
import os
import re
import secrets
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast import decoding
from holdfast.agents.changes.baseline import Baseline, read_rest, take_baseline
from holdfast.agents.evidence.evidence import JournalEntry, decode_entry
from holdfast.agents.worker.acp import AcpRequest
from holdfast.agents.worker.launching import Handover, PreparedStart, WorkerSpec
from holdfast.errors import NotFound, OperationFailed, UsageError, is_storage_fault
from holdfast.local.atomicfile import replace_file
from holdfast.local.trees import remove_tree
from holdfast.wire.processes import NetworkReport, SecretKey

KEPT_S: Final = 14 * 24 * 3600.0  # long enough to look at after a holiday
KEPT_BYTES: Final = 1 << 30  # of all that have ended
SPARED_S: Final = 3600.0  # after its end nothing goes for its size: somebody may still look at it
MAX_EVIDENCE_BYTES: Final = 1 << 20  # of one file; two are kept
MAX_OUTPUT_BYTES: Final = 8 << 20  # likewise
PROCESS: Final = "worker"  # each worker has a session of its own, and in it this one process
MAX_HOSTS: Final = 50  # rows of what went out by name, and of what was refused: a report is sent often
KEPT_EVIDENCE: Final = 400  # entries that whoever takes over starts from
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # of what a machine has
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

Phase = Literal["prepared", "started", "ended"]


class EndedWorker(NamedTuple):
    """What is left of one."""

    id: str
    ended_at: float
    size: int


class Record(msgspec.Struct, kw_only=True):
    """One worker. `phase` is written before what it announces is done."""

    id: str
    agent: str
    argv: list[str]  # with the prompt left out: it may be long, and it may be secret
    cwd: str
    tty: bool
    created_at: float
    acp: bool = False  # led over the Agent Client Protocol
    headless: bool = True  # a run of one prompt, rather than the interactive program
    unattended: bool = False  # it acts without asking
    home: str = "/"  # of the user whose CLI it is
    relocated: bool = True  # the CLI's state is below ours
    state: str = ""  # where that is
    given: list[str] = []  # what of its user's it was given, in words
    confined: bool = True
    notes: list[str] = []  # what about its start somebody should know: its version, its sandbox
    placed: list[str] = []  # files below its state that are removed when it has ended
    began_at: float = 0.0  # the same on the clock of its evidence
    network: bool = True  # all of it
    hosts: list[str] = []  # otherwise what it reaches by name: rules
    denied_hosts: list[str] = []
    private: bool = False  # also at addresses that are not public
    command_hosts: list[str] | None = None  # of its commands, where each has a sandbox; None: as its own
    ask_s: float = 0.0  # somebody is asked about other hosts, and has so many seconds
    by_name: list[str] = []  # how that is enforced, in words; none where it is not
    traffic: NetworkReport | None = None  # what went out by name; None: nobody counted
    keys: list[str] = []  # which of its keys stay outside, and what enters, in words
    writable: list[str] = []
    environment: list[str] = []
    wall_limit_s: float | None = None
    idle_limit_s: float | None = None
    rows: int = 40
    cols: int = 120
    watch: bool = True
    unwatched: str | None = None  # why the sandbox's refusals are not seen, if they are not
    compared: bool = True  # with the host, while it works
    own_sandbox: bool = False  # the CLI keeps its own, and an executor of ours runs its commands
    one_sandbox: str | None = None  # why not, of a CLI that has one: it shares one sandbox with its commands
    trace: bool = False  # explain mode was asked for
    untraced: str | None = None  # why it is off, if it is
    preflight: list[str] = []  # what was seen to go wrong before it was started
    pane: str | None = None  # of tmux, where somebody looks at it
    after: str | None = None  # the worker that this one was started instead of, with one more grant
    host: str | None = None  # the environment that it runs on; then `cwd`, `home` and `state` are there, and
    source: str = ""  # this is the directory here that was carried over
    place: str = ""  # what holds all that is its over there; "" once that is removed
    returned: str | None = None  # the commit, here, of what came back
    unreturned: str | None = None  # why nothing did
    process_id: str = ""
    session_id: str | None = None
    pid: int | None = None  # on this machine
    phase: Phase = "prepared"
    ended_by: str | None = None  # killed, timeout or another failure, when that was our doing
    ended_why: str = ""
    backend: str | None = None  # who confines it
    weakened: list[str] = []  # what of that came out weaker than asked
    schema: int = 1


def describe(worker_id: str, wish: WorkerSpec, ready: PreparedStart) -> Record:
    """What is written down of a start, before anything is started."""
    record = Record(
        id=worker_id,
        agent=wish.agent,
        argv=list(ready.shown),
        cwd=wish.cwd,
        tty=ready.tty,
        acp=wish.acp,
        headless=wish.prompt is not None,
        unattended=wish.unattended,
        created_at=time.time(),
        home=wish.env.get("HOME", "/"),
        relocated=wish.relocate,
        state=ready.state,
        given=list(ready.given),
        confined=not wish.unconfined,
        notes=list(ready.notes),
        began_at=time.clock_gettime(time.CLOCK_BOOTTIME),
        writable=wish.writable,
        environment=sorted(ready.environment),
        wall_limit_s=wish.wall_limit_s,
        idle_limit_s=wish.idle_limit_s,
        rows=wish.rows,
        cols=wish.cols,
        watch=wish.watch,
        trace=wish.trace,
        process_id=PROCESS,
        after=wish.after,
        compared=wish.compared,
    )
    note_reach(record, ready)
    return record


def note_reach(record: Record, ready: PreparedStart) -> None:
    """What of the network it was prepared to have."""
    reach, hosts = ready.reach, ready.policy.without_keys().wish.hosts  # those that its keys are for too
    record.network = reach.whole
    record.hosts, record.denied_hosts = list(dict.fromkeys(hosts.allow)), list(hosts.deny)
    record.private, record.ask_s = hosts.private, max(hosts.ask_s, reach.commands.ask_s)
    record.command_hosts = None
    if ready.commands is not None and not reach.whole_commands:
        record.command_hosts = list(reach.commands.allow)


def bound_traffic(found: NetworkReport | None) -> NetworkReport | None:
    """As much of it as is kept: the hosts with the most bytes, and those that were refused most often."""
    if found is None:
        return None
    sent = sorted(found.sent, key=lambda row: -(row.bytes_sent + row.bytes_received))
    refused = sorted(found.refused, key=lambda row: -row.count)
    left = max(0, len(sent) - MAX_HOSTS) + max(0, len(refused) - MAX_HOSTS)
    return NetworkReport(sent[:MAX_HOSTS], refused[:MAX_HOSTS], found.dropped + left)


def new_id(agent: str) -> str:
    return f"{agent}-{secrets.token_hex(3)}"


class KeptWish(msgspec.Struct, kw_only=True):
    """What a worker was started with, without any value of a variable or key: only their names."""

    wish: WorkerSpec
    variables: list[str] = []
    keyed: bool = False  # a key of its provider was given


class KeptBaseline(msgspec.Struct, frozen=True):
    """A worker's directory when the worker `since` was started."""

    since: str
    taken: Baseline


class WorkerRecords:
    """The workers of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._workers = home / "workers"

    def prepare(self) -> None:
        """Make the directories, for their owner only.

        Raises:
            OperationFailed: they cannot be made, or are somebody else's.
        """
        try:
            for folder in (self.home, self._workers):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.home.stat()
        except OSError as exc:
            raise OperationFailed(f"{self.home} cannot be used: {exc.strerror}", remedy=_REMEDY) from None
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise OperationFailed(f"{self.home} can be changed by others", remedy=_REMEDY)

    def folder(self, worker: str) -> Path:
        """Raises UsageError when this is no name of a worker."""
        if not _ID.fullmatch(worker):
            raise UsageError(f"`{worker}` is not a worker's id", remedy="holdfast worker list")
        return self._workers / worker

    def add(self, record: Record) -> None:
        """Keep a new worker.

        Raises:
            UsageError: there is one of this id.
        """
        folder = self.folder(record.id)
        with contextlib.suppress(NotFound):
            there = self.read(record.id)
            if there.phase != "prepared" or there.session_id is not None:  # not one that never came to be
                raise UsageError(f"there is a worker {record.id} already")
        (folder / "state" / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)  # of one cut short, perhaps
        self.write(record)

    def discard(self, worker: str) -> None:
        """Forget one that never came to be; if that cannot be, `add` takes its place."""
        with contextlib.suppress(OSError):
            (self.folder(worker) / "record.json").unlink()

    def write(self, record: Record) -> None:
        """Replace a record; either the old one or the new one is there, whatever happens."""
        self.keep(record.id, "record.json", msgspec.json.encode(record))

    def keep(self, worker: str, name: str, data: bytes) -> None:
        """Replace a JSON file of a worker, likewise."""
        replace_file(self.folder(worker) / name, msgspec.json.format(data, indent=1) + b"\n")

    def read(self, worker: str) -> Record:
        """Raises NotFound."""
        try:
            data = (self.folder(worker) / "record.json").read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no worker {worker}", remedy="holdfast worker list --all") from None
        try:
            return decoding.decode(data, Record)
        except msgspec.MsgspecError as exc:
            raise OperationFailed(f"the record of {worker} is damaged: {exc}") from None

    def add_request(self, worker: str, request: AcpRequest) -> None:
        replace_file(self.folder(worker) / "errand.json", msgspec.json.encode(request))

    def request(self, worker: str) -> AcpRequest | None:
        """None when there is none that can be read."""
        try:
            return decoding.decode((self.folder(worker) / "errand.json").read_bytes(), AcpRequest)
        except (OSError, msgspec.MsgspecError):
            return None

    def add_wish(self, worker: str, wish: WorkerSpec) -> None:
        kept = KeptWish(
            wish=msgspec.structs.replace(
                wish,
                env={},
                key=None,
                keys=[SecretKey(key.name, "", key.hosts) for key in wish.keys],
                handover=_hide_grant(wish.handover),
            ),
            variables=sorted(wish.env),
            keyed=wish.key is not None,
        )
        replace_file(self.folder(worker) / "wish.json", msgspec.json.encode(kept))

    def wish(self, worker: str) -> KeptWish:
        """Raises NotFound: it is an older worker, or one whose wish cannot be read."""
        try:
            return decoding.decode((self.folder(worker) / "wish.json").read_bytes(), KeptWish)
        except (OSError, msgspec.MsgspecError):
            raise NotFound(
                f"it is not known what {worker} was started with",
                remedy="start it with `holdfast worker run`",
            ) from None

    def add_baseline(self, record: Record) -> KeptBaseline:
        """What is in its directory now. One that is started again goes on with that of the one before it.

        Where it cannot be kept, nobody knows later what the worker changed.
        """
        kept = None if record.after is None else self.baseline(record.after)
        found = kept or KeptBaseline(record.id, take_baseline(Path(record.cwd)))
        self._keep_baseline(record, found, durable=False)  # its start waits for it
        return found

    def complete_baseline(self, record: Record, found: KeptBaseline) -> None:
        """Add what there was no time to read before the start, as far as it is as it was."""
        if found.since == record.id:
            found = KeptBaseline(record.id, read_rest(Path(record.cwd), found.taken))
        self._keep_baseline(record, found, durable=True)

    def _keep_baseline(self, record: Record, found: KeptBaseline, *, durable: bool) -> None:
        with contextlib.suppress(OSError):
            place = self.folder(record.id) / "baseline.json"
            replace_file(place, msgspec.json.encode(found), durable=durable)

    def baseline(self, worker: str) -> KeptBaseline | None:
        """None when there is none that can be read."""
        try:
            found = (self.folder(worker) / "baseline.json").read_bytes()
            return decoding.decode(found, KeptBaseline)
        except (OSError, msgspec.MsgspecError):
            return None

    def __iter__(self) -> Iterator[Record]:
        """Every worker whose record can be read, the oldest first."""
        found = []
        for folder in sorted(self._workers.iterdir()) if self._workers.is_dir() else ():
            with contextlib.suppress(NotFound, OperationFailed, UsageError):
                found.append(self.read(folder.name))
        yield from sorted(found, key=lambda record: record.created_at)

    def list_ended(self) -> list[EndedWorker]:
        """What is left of the workers that have ended; the record is written last when one ends."""
        found = []
        for record in self:
            folder = self.folder(record.id)
            if record.phase == "ended":
                with contextlib.suppress(OSError):
                    ended_at = (folder / "record.json").stat().st_mtime
                    found.append(EndedWorker(record.id, ended_at, _measure(folder)))
        return found

    def remove(self, worker: str) -> None:
        """Forget one that has ended, with all that is left of it. Killed half-way, it is forgotten as well.

        Raises:
            OSError: something in it cannot be removed.
        """
        self.discard(worker)
        remove_tree(self.folder(worker))

    def evidence(self, worker: str) -> list[JournalEntry]:
        """The newest entries, oldest first; a torn line is left out."""
        folder, entries = self.folder(worker), []
        for name in ("evidence.jsonl.1", "evidence.jsonl"):
            with contextlib.suppress(FileNotFoundError):
                lines = (folder / name).read_bytes().splitlines()
                entries += [entry for line in lines if (entry := decode_entry(line)) is not None]
        return entries[-KEPT_EVIDENCE:]


def _hide_grant(handover: Handover | None) -> Handover | None:
    return None if handover is None else msgspec.structs.replace(handover, grant="")


def _measure(folder: Path) -> int:
    """Bytes on the disk below a directory; no link is followed."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
    return size


class Log:
    """A file that is appended to and never larger than twice a bound: full, it becomes the one before.

    What cannot be written, to a disk that is full or without a descriptor left, is kept, as much as fits
    into the file, until it can: `owes` says so, and `flush` tries again. Nobody is owed anything whose
    directory is gone. Closed, it takes nothing more: the number of its descriptor may be somebody else's.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._owed = b""

    @property
    def owes(self) -> bool:
        return bool(self._owed)

    def append(self, data: bytes) -> None:
        if self._fd >= 0:
            self._owed = (self._owed + data)[-self._max_bytes :]
            self.flush()

    def flush(self) -> None:
        """Write what is owed, if that can be done now."""
        try:
            if self._size + len(self._owed) > self._max_bytes:
                self._begin_anew()
            while self._owed:
                written = os.write(self._fd, self._owed)
                self._size += written
                self._owed = self._owed[written:]
        except FileNotFoundError:
            self._owed = b""
        except OSError as exc:
            if not is_storage_fault(exc) and exc.errno not in _SHORT:
                raise

    def _begin_anew(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # done before, when no new one could be opened
            os.replace(self._path, f"{self._path}.1")
        old, self._fd = self._fd, self._open()
        self._size = 0
        os.close(old)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


class NumberFile:
    """A number in a file, written in place: whoever is killed leaves the old one or the new one. As above."""

    _FORMAT: Final = struct.Struct("<Q")

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.pread(self._fd, self._FORMAT.size, 0)
        self.value: int = self._FORMAT.unpack(found)[0] if len(found) == self._FORMAT.size else 0

    def set(self, value: int) -> None:
        """On a disk that does not take it the old one stays: what came since is read once more."""
        if self._fd >= 0:
            try:
                os.pwrite(self._fd, self._FORMAT.pack(value), 0)
            except OSError as exc:
                if not is_storage_fault(exc):
                    raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LogReader:
    """What a `Log` gets, read as it grows by another process, also where it is begun anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def read(self, max_bytes: int) -> bytes:
        """What has come since the last time; nothing before there is such a file."""
        if self._fd < 0 and not self._open():
            return b""
        found = os.read(self._fd, max_bytes)
        if found or not self._is_begun_anew():
            return found
        if found := os.read(self._fd, max_bytes):  # written after the first look, before the new beginning
            return found
        os.close(self._fd)
        self._fd = -1
        return self.read(max_bytes)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd >= 0

    def _is_begun_anew(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return not os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        return False


def output_of(home: Path, worker: str) -> Path:
    """Where the supervisor of this home keeps what a worker says."""
    return home / "workers" / worker / "output.log"


def tail(path: Path, max_bytes: int) -> bytes:
    """The end of a log, across both its files."""
    parts: list[bytes] = []
    for name in (path, Path(f"{path}.1")):
        left = max_bytes - sum(map(len, parts))
        with contextlib.suppress(FileNotFoundError), open(name, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - left))
            parts.insert(0, file.read(left))
    return b"".join(parts)


def read_failure(path: Path, max_bytes: int) -> tuple[str, str | None]:
    """What a daemon that has ended said last in its log, and what to type: not all else that is there."""
    lines = [line for line in tail(path, max_bytes).decode("utf-8", "replace").splitlines() if line.strip()]
    for index in reversed(range(len(lines))):
        if lines[index].startswith(_SAID):
            tries = [
                line.removeprefix(_TRY) for line in lines[index + 1 : index + 2] if line.startswith(_TRY)
            ]
            return lines[index].removeprefix(_SAID), tries[0] if tries else None
    return "; ".join(line.strip() for line in lines[-2:]), None


_SAID: Final = "holdfast: "  # as commands say what is wrong (`commands/output.py`)
_TRY: Final = "  try: "
_REMEDY: Final = "set HOLDFAST_HOME to a directory of your own; inside of a sandbox no other home is seen"


# --- how long
#
# A worker leaves its output, its evidence and its CLI's state behind, which is megabytes of each. The oldest
# go first: those that ended long ago, and of the others as many as make what is left fit.


def choose_oldest(
    ended: Iterable[EndedWorker], now: float, *, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES
) -> list[EndedWorker]:
    """Those to be removed, the oldest first."""
    by_age = sorted(ended, key=lambda one: (one.ended_at, one.id))
    left = sum(one.size for one in by_age)
    gone = []
    for one in by_age:
        age = now - one.ended_at
        if age >= kept_s or (left > kept_bytes and age >= SPARED_S):
            gone.append(one)
            left -= one.size
    return gone
