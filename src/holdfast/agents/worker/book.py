"""What is kept of every worker on disk: its record, its evidence, its output.

    HOME/
      exec.sock supervisor.sock supervisor.lock *.log
      workers/ID/
        record.json      the request and its outcome, always replaced whole
        baseline.json    the content of its directory when it, or the worker it replaces, was started
        errand.json      the prompt of a worker driven over ACP, for the next supervisor
        wish.json        the original request, to start it again with another grant
        evidence.jsonl   the newest evidence; the previous file is evidence.jsonl.1
        output.log       its raw output; the previous file is output.log.1
        login.json       if it has a renewable login: which worker renews it, but no token
        equivalence.json how its surroundings differ from the host
        carried.json     if it runs on another machine: what was sent there
        carried/         the git objects that were sent and returned
        read             the number of the last output event in these files
        state/           the CLI's own state

A record is on disk before its worker is started. It never holds the value of an environment variable.
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
KEPT_BYTES: Final = 1 << 30  # of all ended workers
SPARED_S: Final = 3600.0  # after its end, when it is not yet removed for its size: users may still look at it
MAX_EVIDENCE_BYTES: Final = 1 << 20  # of one file; two are kept
MAX_OUTPUT_BYTES: Final = 8 << 20  # of one file; two are kept
PROCESS: Final = "worker"  # each worker has its own session, with this one process in it
MAX_HOSTS: Final = 50  # rows of traffic by host, and of refused hosts: a report is sent often
KEPT_EVIDENCE: Final = 400  # entries that the next supervisor starts from
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # shortage of resources
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

Phase = Literal["prepared", "started", "ended"]


class EndedWorker(NamedTuple):
    """The data of an ended worker."""

    id: str
    ended_at: float
    size: int


class Record(msgspec.Struct, kw_only=True):
    """One worker. `phase` is written to disk before the step that it announces."""

    id: str
    agent: str
    argv: list[str]  # without the prompt, which may be long or secret
    cwd: str
    tty: bool
    created_at: float
    acp: bool = False  # driven over the Agent Client Protocol
    headless: bool = True  # a run of one prompt, rather than the interactive program
    unattended: bool = False  # it acts without asking
    home: str = "/"  # of the user who runs it
    relocated: bool = True  # the CLI's state is below ours
    state: str = ""  # the path of the state
    given: list[str] = []  # which of the user's files it got, in words
    confined: bool = True
    notes: list[str] = []  # remarks about its start for the user: its version, its sandbox
    placed: list[str] = []  # files below its state that are removed when it has ended
    began_at: float = 0.0  # created_at on the clock of its evidence
    network: bool = True  # the whole network
    hosts: list[str] = []  # otherwise the hosts it reaches by name: rules
    denied_hosts: list[str] = []
    private: bool = False  # also at non-public addresses
    command_hosts: list[str] | None = None  # hosts of its commands, if each has a sandbox; None: the same
    ask_s: float = 0.0  # seconds to answer questions about other hosts; 0: no questions
    by_name: list[str] = []  # how the host rules are enforced, in words; empty if they are not
    traffic: NetworkReport | None = None  # its traffic by host name; None: not counted
    keys: list[str] = []  # which of its keys stay outside, and what enters, in words
    writable: list[str] = []
    environment: list[str] = []
    wall_limit_s: float | None = None
    idle_limit_s: float | None = None
    rows: int = 40
    cols: int = 120
    watch: bool = True
    unwatched: str | None = None  # why the sandbox's refusals are not seen, if they are not
    compared: bool = True  # compare its surroundings with the host while it works
    own_sandbox: bool = False  # the CLI keeps its own sandbox, and our executor runs its commands
    one_sandbox: str | None = None  # why not, for a CLI that could: commands share the CLI's sandbox
    trace: bool = False  # explain mode was requested
    untraced: str | None = None  # why explain mode is off, if it is
    preflight: list[str] = []  # problems that were found before it was started
    pane: str | None = None  # the tmux pane that shows it
    after: str | None = None  # the worker that this one replaces, with another grant
    host: str | None = None  # the environment that it runs on; `cwd`, `home` and `state` are then there
    source: str = ""  # with `host`: the local directory that was carried over
    place: str = ""  # with `host`: its directory there, with all its files; "" once that is removed
    returned: str | None = None  # the commit, here, of the returned result
    unreturned: str | None = None  # why nothing was returned
    process_id: str = ""
    session_id: str | None = None
    pid: int | None = None  # on this machine
    phase: Phase = "prepared"
    ended_by: str | None = None  # killed, timeout or another failure, if we ended it
    ended_why: str = ""
    backend: str | None = None  # the sandbox backend that confines it
    weakened: list[str] = []  # which parts of the sandbox are weaker than requested
    schema: int = 1


def describe(worker_id: str, wish: WorkerSpec, ready: PreparedStart) -> Record:
    """Create the record of a start, before anything is started."""
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
    """Note in the record which part of the network the worker was prepared to reach."""
    reach, hosts = ready.reach, ready.policy.without_keys().wish.hosts  # includes the hosts of its keys
    record.network = reach.whole
    record.hosts, record.denied_hosts = list(dict.fromkeys(hosts.allow)), list(hosts.deny)
    record.private, record.ask_s = hosts.private, max(hosts.ask_s, reach.commands.ask_s)
    record.command_hosts = None
    if ready.commands is not None and not reach.whole_commands:
        record.command_hosts = list(reach.commands.allow)


def bound_traffic(found: NetworkReport | None) -> NetworkReport | None:
    """Bound the report: keep the hosts with the most bytes, and those that were refused most often."""
    if found is None:
        return None
    sent = sorted(found.sent, key=lambda row: -(row.bytes_sent + row.bytes_received))
    refused = sorted(found.refused, key=lambda row: -row.count)
    left = max(0, len(sent) - MAX_HOSTS) + max(0, len(refused) - MAX_HOSTS)
    return NetworkReport(sent[:MAX_HOSTS], refused[:MAX_HOSTS], found.dropped + left)


def new_id(agent: str) -> str:
    return f"{agent}-{secrets.token_hex(3)}"


class KeptWish(msgspec.Struct, kw_only=True):
    """The request that a worker was started with, with only the names of variables and keys, not values."""

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
            OperationFailed: they cannot be made, or another user owns or can change them.
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
        """Return the directory of a worker. Raises UsageError if the id is invalid."""
        if not _ID.fullmatch(worker):
            raise UsageError(f"`{worker}` is not a worker's id", remedy="holdfast worker list")
        return self._workers / worker

    def add(self, record: Record) -> None:
        """Keep a new worker.

        Raises:
            UsageError: there is one with this id.
        """
        folder = self.folder(record.id)
        with contextlib.suppress(NotFound):
            there = self.read(record.id)
            if there.phase != "prepared" or there.session_id is not None:  # it did start
                raise UsageError(f"there is a worker {record.id} already")
        # An interrupted start may have left the directory.
        (folder / "state" / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write(record)

    def discard(self, worker: str) -> None:
        """Forget a worker that was never started; if that fails, `add` can still reuse the id."""
        with contextlib.suppress(OSError):
            (self.folder(worker) / "record.json").unlink()

    def write(self, record: Record) -> None:
        """Replace a record atomically: either the old one or the new one exists, whatever happens."""
        self.keep(record.id, "record.json", msgspec.json.encode(record))

    def keep(self, worker: str, name: str, data: bytes) -> None:
        """Replace a JSON file of a worker atomically."""
        replace_file(self.folder(worker) / name, msgspec.json.format(data, indent=1) + b"\n")

    def read(self, worker: str) -> Record:
        """Read a record. Raises NotFound; OperationFailed if it is damaged."""
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
        """Read the ACP request; None if there is no readable one."""
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
        """Read the original request. Raises NotFound for an older worker, or if it is unreadable."""
        try:
            return decoding.decode((self.folder(worker) / "wish.json").read_bytes(), KeptWish)
        except (OSError, msgspec.MsgspecError):
            raise NotFound(
                f"it is not known what {worker} was started with",
                remedy="start it with `holdfast worker run`",
            ) from None

    def add_baseline(self, record: Record) -> KeptBaseline:
        """Record the content of its directory now; a restarted worker takes over the earlier baseline.

        If it cannot be stored, the changes of the worker will be unknown.
        """
        kept = None if record.after is None else self.baseline(record.after)
        found = kept or KeptBaseline(record.id, take_baseline(Path(record.cwd)))
        self._keep_baseline(record, found, durable=False)  # its start waits for it
        return found

    def complete_baseline(self, record: Record, found: KeptBaseline) -> None:
        """Add the contents that there was no time to read before the start, of files still unchanged."""
        if found.since == record.id:
            found = KeptBaseline(record.id, read_rest(Path(record.cwd), found.taken))
        self._keep_baseline(record, found, durable=True)

    def _keep_baseline(self, record: Record, found: KeptBaseline, *, durable: bool) -> None:
        with contextlib.suppress(OSError):
            place = self.folder(record.id) / "baseline.json"
            replace_file(place, msgspec.json.encode(found), durable=durable)

    def baseline(self, worker: str) -> KeptBaseline | None:
        """Read the baseline; None if there is no readable one."""
        try:
            found = (self.folder(worker) / "baseline.json").read_bytes()
            return decoding.decode(found, KeptBaseline)
        except (OSError, msgspec.MsgspecError):
            return None

    def __iter__(self) -> Iterator[Record]:
        """Yield every readable record, oldest first."""
        found = []
        for folder in sorted(self._workers.iterdir()) if self._workers.is_dir() else ():
            with contextlib.suppress(NotFound, OperationFailed, UsageError):
                found.append(self.read(folder.name))
        yield from sorted(found, key=lambda record: record.created_at)

    def list_ended(self) -> list[EndedWorker]:
        """Return the data of ended workers. The mtime of the record is their end: it is written last."""
        found = []
        for record in self:
            folder = self.folder(record.id)
            if record.phase == "ended":
                with contextlib.suppress(OSError):
                    ended_at = (folder / "record.json").stat().st_mtime
                    found.append(EndedWorker(record.id, ended_at, _measure(folder)))
        return found

    def remove(self, worker: str) -> None:
        """Remove an ended worker with all its data. If we are killed half-way, it is already forgotten.

        Raises:
            OSError: something in it cannot be removed.
        """
        self.discard(worker)
        remove_tree(self.folder(worker))

    def evidence(self, worker: str) -> list[JournalEntry]:
        """Return the newest entries, oldest first, without a truncated line."""
        folder, entries = self.folder(worker), []
        for name in ("evidence.jsonl.1", "evidence.jsonl"):
            with contextlib.suppress(FileNotFoundError):
                lines = (folder / name).read_bytes().splitlines()
                entries += [entry for line in lines if (entry := decode_entry(line)) is not None]
        return entries[-KEPT_EVIDENCE:]


def _hide_grant(handover: Handover | None) -> Handover | None:
    return None if handover is None else msgspec.structs.replace(handover, grant="")


def _measure(folder: Path) -> int:
    """Return the bytes on disk below a directory; no link is followed."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
    return size


class Log:
    """An append-only log of at most twice the bound: a full file becomes the previous file.

    Data that cannot be written (disk full, no descriptor left) is buffered, up to the size of the file.
    `owes` reports that, and `flush` tries again. If the directory is gone, the buffered data is dropped. A
    closed log accepts nothing more, because its descriptor number may have been reused.
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
        """Write the buffered data, if that is possible now."""
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
        with contextlib.suppress(FileNotFoundError):  # renamed already, when no new file could be opened
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
    """A number in a file, written in place: a killed process leaves the old or the new number.

    As with `Log`, storage faults do not raise.
    """

    _FORMAT: Final = struct.Struct("<Q")

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.pread(self._fd, self._FORMAT.size, 0)
        self.value: int = self._FORMAT.unpack(found)[0] if len(found) == self._FORMAT.size else 0

    def set(self, value: int) -> None:
        """Store the number. If the disk fails, the old one stays, and the output since then is read again."""
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
    """Reads a `Log` that another process appends to, also across the start of a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def read(self, max_bytes: int) -> bytes:
        """Return the data since the last call; empty while the file does not exist."""
        if self._fd < 0 and not self._open():
            return b""
        found = os.read(self._fd, max_bytes)
        if found or not self._is_begun_anew():
            return found
        if found := os.read(self._fd, max_bytes):  # written after the first read, before the new file
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
    """Return the file in which the supervisor of this home keeps the output of a worker."""
    return home / "workers" / worker / "output.log"


def tail(path: Path, max_bytes: int) -> bytes:
    """Return the end of a log, across both its files."""
    parts: list[bytes] = []
    for name in (path, Path(f"{path}.1")):
        left = max_bytes - sum(map(len, parts))
        with contextlib.suppress(FileNotFoundError), open(name, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - left))
            parts.insert(0, file.read(left))
    return b"".join(parts)


def read_failure(path: Path, max_bytes: int) -> tuple[str, str | None]:
    """Return the last error message in the log of an ended daemon, and its remedy, without other lines."""
    lines = [line for line in tail(path, max_bytes).decode("utf-8", "replace").splitlines() if line.strip()]
    for index in reversed(range(len(lines))):
        if lines[index].startswith(_SAID):
            tries = [
                line.removeprefix(_TRY) for line in lines[index + 1 : index + 2] if line.startswith(_TRY)
            ]
            return lines[index].removeprefix(_SAID), tries[0] if tries else None
    return "; ".join(line.strip() for line in lines[-2:]), None


_SAID: Final = "holdfast: "  # the prefix of error messages of commands (`commands/output.py`)
_TRY: Final = "  try: "
_REMEDY: Final = "set HOLDFAST_HOME to a directory of your own; inside of a sandbox no other home is seen"


# --- retention
#
# An ended worker leaves megabytes of output, evidence and CLI state. The oldest are removed first: those that
# ended long ago, and then as many of the others as needed to fit the size limit.


def choose_oldest(
    ended: Iterable[EndedWorker], now: float, *, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES
) -> list[EndedWorker]:
    """Return the workers to be removed, oldest first."""
    by_age = sorted(ended, key=lambda one: (one.ended_at, one.id))
    left = sum(one.size for one in by_age)
    gone = []
    for one in by_age:
        age = now - one.ended_at
        if age >= kept_s or (left > kept_bytes and age >= SPARED_S):
            gone.append(one)
            left -= one.size
    return gone
