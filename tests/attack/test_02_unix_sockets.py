"""A confined command and the unix sockets of the host: with the network on or off it reaches its own,
and those that were granted, and no other."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import identity
from tests.support.exec_command import Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row

BACKENDS = ["namespaces", "bwrap", "landlock"]
NETWORKS = ["off", "on"]


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


class Host:
    """Servers of the host, which count who came."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._open = contextlib.ExitStack()
        self.tmp = identity.folder_for(uid, "/tmp")  # writable by every default policy

    def listen(self, address: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
        sock = self._open.enter_context(socket.socket(socket.AF_UNIX, kind))
        sock.bind(address)
        if kind != socket.SOCK_DGRAM:
            sock.listen(64)
        sock.setblocking(False)
        if address.startswith("/"):
            identity.hand_over(Path(address), self._uid)
        return sock

    def close(self) -> None:
        self._open.close()
        shutil.rmtree(self.tmp)


@pytest.fixture
def host(anyone: Place) -> Iterator[Host]:
    made = Host(anyone.uid)
    yield made
    made.close()


def came(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


# Inside: every way is tried, and what came of it printed on a line of its own.
WAYS = """
import ctypes, errno, os, socket, struct, sys, threading
path, abstract, datagram, folder = sys.argv[1:5]

def connect(address, family=1, kind=1):
    with socket.socket(family, kind) as sock:
        sock.settimeout(WAIT_S)
        sock.connect(address)

def by_link():
    os.symlink(path, folder + "/link"); connect(folder + "/link")

def by_hard_link():
    os.link(path, folder + "/hard"); connect(folder + "/hard")

def by_name_of_ours():
    # bound by us, then replaced by the host's: what counts is the socket and not its name
    with socket.socket(1) as sock:
        sock.bind(folder + "/mine"); os.unlink(folder + "/mine"); os.link(path, folder + "/mine")
    connect(folder + "/mine")

def by_relative_name():
    os.chdir(os.path.dirname(path)); connect(os.path.basename(path))

def by_descriptor():
    fd = os.open(os.path.dirname(path), os.O_PATH)
    connect(f"/proc/self/fd/{fd}/{os.path.basename(path)}")

def by_passed_socket():
    # made by another process and passed on, so that it is nobody's own
    here, there = socket.socketpair()
    if os.fork() == 0:
        try: made = socket.socket(1); socket.send_fds(there, [b"x"], [made.fileno()])
        finally: os._exit(0)
    there.close()
    _, fds, _, _ = socket.recv_fds(here, 1, 1)
    if not fds: raise PermissionError(errno.EPERM, "none was made")
    socket.socket(fileno=fds[0]).connect(path)

def by_thread():
    seen = []
    def run():
        try: connect(path); seen.append(None)
        except OSError as exc: seen.append(exc)
    thread = threading.Thread(target=run); thread.start(); thread.join()
    if seen[0]: raise seen[0]

def by_own_listener():
    # a listener of its own would let its calls go on
    libc = ctypes.CDLL(None, use_errno=True)
    code = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
    at = ctypes.cast(code, ctypes.c_void_p).value
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, at))
    libc.prctl(38, 1, 0, 0, 0)
    fd = libc.syscall({"x86_64": 317, "aarch64": 277}[os.uname().machine], 1, 8, program)
    if fd < 0: raise OSError(ctypes.get_errno(), "refused")

def by_datagram(kind):
    with socket.socket(1, kind) as sock: sock.sendto(b"x", datagram)

def by_datagram_pair():
    socket.socketpair(1, socket.SOCK_DGRAM)[0].sendto(b"x", datagram)

for name, way in {
    "path": lambda: connect(path),
    "seqpacket": lambda: connect(path + ".packets", 1, socket.SOCK_SEQPACKET),
    "abstract": lambda: connect("\\0" + abstract),
    "link": by_link, "hard": by_hard_link, "ours": by_name_of_ours, "relative": by_relative_name,
    "descriptor": by_descriptor, "passed": by_passed_socket, "thread": by_thread,
    "datagram": lambda: by_datagram(socket.SOCK_DGRAM), "raw": lambda: by_datagram(socket.SOCK_RAW),
    "datagram-pair": by_datagram_pair,
    "listener": by_own_listener,
}.items():
    try: way(); print(name, "done", flush=True)
    except OSError as exc: print(name, errno.errorcode.get(exc.errno, exc), flush=True)
""".replace("WAIT_S", str(patient(5)))
ALWAYS = {"listener"}  # outside everybody may have one


def ways(done_out: str) -> dict[str, str]:
    return {name: outcome for name, _, outcome in (line.partition(" ") for line in done_out.splitlines())}


@every_row("backend", BACKENDS)
@every_row("network", NETWORKS)
def test_no_unix_socket_of_the_host_is_reached(anyone: Place, host: Host, backend: str, network: str) -> None:
    name, abstract = str(host.tmp / f"s{uuid.uuid4().hex[:8]}"), uuid.uuid4().hex
    stream, packets = host.listen(name), host.listen(f"{name}.packets", socket.SOCK_SEQPACKET)
    hidden, datagrams = host.listen(f"\0{abstract}"), host.listen(f"{name}.d", socket.SOCK_DGRAM)
    servers = (stream, packets, hidden)
    scratch = identity.folder_for(anyone.uid, str(host.tmp))
    command = [anyone.python, "-c", WAYS, name, abstract, f"{name}.d"]

    outside = ways(anyone.call(anyone.as_user([*command, str(scratch)])).out)
    assert set(outside.values()) == {"done"}, "without the sandbox every way leads there"
    assert all(came(server) for server in servers)
    while came(stream):
        pass
    assert datagrams.recv(1) == b"x"
    while True:
        try:
            datagrams.recv(1)
        except BlockingIOError:
            break

    shutil.rmtree(scratch)
    scratch = identity.folder_for(anyone.uid, str(host.tmp))
    flags = ("--backend", backend, "--network", network)
    inside = ways(anyone.run(*flags, "--", *command, str(scratch)).out)
    assert inside.keys() == outside.keys(), inside
    allowed = {way for way, outcome in inside.items() if outcome == "done"}
    assert allowed <= (ALWAYS if backend != "namespaces" else set()), inside
    assert not any(came(server) for server in servers)
    with pytest.raises(BlockingIOError):
        datagrams.recv(1)


@every_row("network", NETWORKS)
def test_a_real_tmux_server_outside_is_not_commanded(anyone: Place, host: Host, network: str) -> None:
    assert shutil.which("tmux"), "tmux is needed for this test"
    folder, mark = host.tmp / f"tmux-{anyone.uid}", anyone.outside / "ESCAPED"
    folder.mkdir(mode=0o700, exist_ok=True)
    identity.hand_over(folder, anyone.uid)
    server = ["tmux", "-S", f"{folder}/{network}", "-f", "/dev/null"]
    told = [*server, "run-shell", f"touch {mark}"]
    began = anyone.call(anyone.as_user([*server, "new-session", "-d", "sh"]))
    assert began.code == 0, began.err
    try:
        assert anyone.call(anyone.as_user(told)).code == 0
        assert mark.exists(), "whoever reaches the server runs commands outside"
        mark.unlink()
        done = anyone.run("--network", network, "--", *told)
        assert done.code != 0
        assert not mark.exists()
        assert "Permission denied" in done.err
        assert "--network on" not in done.err
        assert "--allow-socket" not in done.err, "a socket that hands over terminals is not suggested"
    finally:
        anyone.call(anyone.as_user([*server, "kill-server"]))


@every_row("network", NETWORKS)
def test_a_grant_is_for_exactly_that_socket(anyone: Place, host: Host, network: str) -> None:
    granted, other = str(host.tmp / f"granted-{network}"), str(host.tmp / f"other-{network}")
    servers = host.listen(granted), host.listen(other)
    script = (
        "import os, socket, sys\n"
        "def tried(path):\n"
        "    try: socket.socket(1).connect(path); return 'done'\n"
        "    except OSError as exc: return exc.errno\n"
        "one, two = sys.argv[1:]\n"
        "print(tried(one), tried(two))\n"
        "os.rename(two, one)\n"  # /tmp is writable: put the other one in its place
        "print(tried(one))\n"
    )
    command = (anyone.python, "-c", script, granted, other)
    done = anyone.run("--network", network, "--allow-socket", granted, "--", *command)
    assert done.out.split() == ["done", "13", "done"], done
    reached = [came(servers[0]) and came(servers[0]), came(servers[1])]
    assert reached == [True, False], "the name leads to what was granted, whatever lies there now"


def test_a_granted_socket_is_reached_also_where_its_folder_is_hidden(anyone: Place, host: Host) -> None:
    folder = anyone.outside / "service"
    folder.mkdir()
    anyone.own()
    server = host.listen(str(folder / "s"))
    command = (
        anyone.python,
        "-c",
        "import socket, sys; socket.socket(1).connect(sys.argv[1])",
        str(folder / "s"),
    )
    assert anyone.run("--deny", str(folder), "--", *command).code != 0
    assert not came(server)
    assert anyone.run("--deny", str(folder), "--allow-socket", str(folder / "s"), "--", *command).code == 0
    assert came(server)


def test_what_cannot_be_granted_is_said(anyone: Place, host: Host) -> None:
    for name in ("supervisor.sock", "docker.sock"):
        host.listen(str(host.tmp / name))
    ours = anyone.run("--allow-socket", str(host.tmp / "supervisor.sock"), "--", "true")
    assert (ours.code, "Holdfast's own" in ours.err) == (2, True), ours
    missing = anyone.run("--allow-socket", str(host.tmp / "none"), "--", "true")
    assert (missing.code, "there is no socket" in missing.err) == (2, True), missing
    risky = anyone.run("--allow-socket", str(host.tmp / "docker.sock"), "--", "true")
    assert (risky.code, "run anything as root" in risky.err) == (0, True), risky
    elsewhere = anyone.run(
        "--backend", "bwrap", "--allow-socket", str(host.tmp / "docker.sock"), "--", "true"
    )
    assert (elsewhere.code, "unix-sockets" in elsewhere.err) == (125, True), elsewhere


RACES = """
import ctypes, os, socket, struct, sys, threading
target, own, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
mine = socket.socket(1); mine.bind(own); mine.listen(4096)
reached = []

def address(path):
    return struct.pack("=H", 1) + path.encode().ljust(108, b"\\0")

# Another thread writes the host's address over ours, and puts another socket at the descriptor.
memory = ctypes.create_string_buffer(address(own), 110)
stop = threading.Event()
unix, inet = socket.socket(1), socket.socket(2)

def swap():
    ours, theirs = address(own), address(target)
    while not stop.is_set():
        ctypes.memmove(memory, theirs, 110)
        ctypes.memmove(memory, ours, 110)

def exchange(slot):
    while not stop.is_set():
        os.dup2(inet.fileno(), slot)
        os.dup2(socket.socket(1).fileno(), slot)

def link():
    while not stop.is_set():
        for to in (own, target):
            os.symlink(to, own + ".new"); os.rename(own + ".new", own + ".link")

slot = os.dup(unix.fileno())
os.symlink(own, own + ".link")
for job in (swap, lambda: exchange(slot), link):
    threading.Thread(target=job, daemon=True).start()
for _ in range(rounds):
    with socket.socket(1) as sock:
        libc.connect(sock.fileno(), memory, 110)
        try: reached.append(sock.getpeername())
        except OSError: pass
    libc.connect(slot, address(target), 110)
    with socket.socket(1) as sock:
        try: sock.connect(own + ".link")
        except OSError: pass
    # bind, and replace the name before anybody has looked at what was bound
    with socket.socket(1) as sock:
        name = own + ".b"
        racer = threading.Thread(target=lambda: [replace(name) for _ in range(3)])
        def replace(name):
            try: os.link(target, name + "x"); os.rename(name + "x", name)
            except OSError: pass
        racer.start()
        try: sock.bind(name)
        except OSError: pass
        racer.join()
    with socket.socket(1) as sock:
        try: sock.connect(name)
        except OSError: pass
    for leftover in (name, name + "x"):
        try: os.unlink(leftover)
        except OSError: pass
stop.set()
print(len(reached), any(target in str(one) for one in reached))
"""


@every_row("network", NETWORKS)
def test_nothing_that_changes_meanwhile_leads_to_the_host(anyone: Place, host: Host, network: str) -> None:
    target, own = str(host.tmp / f"host-{network}"), str(host.tmp / f"own-{network}")
    server = host.listen(target)
    command = (anyone.python, "-c", RACES, target, own, "60")
    done = anyone.run("--network", network, "--", *command)
    assert done.code == 0, done
    won, escaped = done.out.split()
    assert int(won) > 0, "some of the attempts reached the socket that they may reach"
    assert escaped == "False"
    assert not came(server)


INSIDE = """
import multiprocessing, os, socket, subprocess, sys, tempfile

def double(x):
    return 2 * x

if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        shared = manager.dict(); shared["x"] = 1; assert dict(shared) == {"x": 1}
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.umask(0o027)
    long = "n" * 100
    for kind, name in ((1, "relative"), (socket.SOCK_SEQPACKET, folder + "/absolute"), (1, long)):
        with socket.socket(1, kind) as server, socket.socket(1, kind) as client:
            server.bind(name); server.listen(); client.connect(name)
            assert server.getsockname() == client.getpeername() == name
            assert oct(os.stat(name).st_mode & 0o777) == "0o750"
            os.rename(name, "moved"); os.link("moved", "again")
            with socket.socket(1, kind) as late: late.connect("again")
            os.unlink("moved"); os.unlink("again")
    for refused in ("/etc/s", folder + "/none/s"):
        try: socket.socket(1).bind(refused); raise SystemExit("bound " + refused)
        except OSError: pass
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).close()
    print("fine")
"""


@every_row("network", NETWORKS)
def test_sockets_made_inside_work(anyone: Place, network: str) -> None:
    script = anyone.workspace / "inside.py"
    script.write_text(INSIDE)
    anyone.own()
    done = anyone.run("--network", network, "--", anyone.python, str(script))
    assert (done.code, done.out) == (0, "fine\n"), done


def test_tmux_and_an_ssh_agent_of_its_own_work_inside(anyone: Place) -> None:
    script = (
        "set -e; export TMUX_TMPDIR=$PWD; tmux -f /dev/null new-session -d 'sleep 60'; tmux ls; "
        "tmux run-shell 'touch told'; tmux kill-server; test -e told; "
        'eval "$(ssh-agent -a $PWD/agent)" >&2; ssh-add -l || test $? = 1; kill $SSH_AGENT_PID'
    )
    done = anyone.sh(script)
    assert done.code == 0, done
    assert "0: 1 windows" in done.out
    assert "no identities" in done.out


def test_a_blocking_connection_waits_and_a_killed_caller_is_let_go(anyone: Place) -> None:
    script = (
        "import os, signal, socket, sys, threading\n"
        "server = socket.socket(1); server.bind('full'); server.listen(0)\n"
        "first = socket.socket(1); first.connect('full')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    socket.socket(1).connect('full'); os._exit(0)\n"  # waits: nobody has accepted
        "other = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(other.getsockname()).close()\n"  # the broker serves others meanwhile
        "os.kill(pid, signal.SIGKILL); print(os.waitpid(pid, 0)[1])\n"
        "late = threading.Thread(target=lambda: socket.socket(1).connect('full'), daemon=True)\n"
        "late.start()\n"
        f"server.settimeout({patient(10)}); server.accept()\n"  # the first
        "while late.is_alive(): server.accept(); late.join(0.1)\n"  # the late one, or that of the killed one
        "print(late.is_alive())\n"
    )
    done = anyone.run("--", anyone.python, "-c", script)
    assert (done.code, done.out.split()) == (0, ["9", "False"]), done


@every_row("backend", BACKENDS)
def test_with_the_network_on_special_sockets_are_refused(anyone: Place, backend: str) -> None:
    script = (
        "import socket\n"
        "for family, kind, protocol in ((40, 1, 0), (38, 5, 0), (16, 3, 9), (16, 3, 15), (31, 3, 1)):\n"
        "    try: socket.socket(family, kind, protocol); print('made', family)\n"
        "    except OSError as exc: print(exc.errno)\n"
        "socket.socket(2); socket.socket(10); socket.socket(16, 3, 0)\n"
    )
    done = anyone.run("--network", "on", "--backend", backend, "--", anyone.python, "-c", script)
    assert (done.code, set(done.out.split())) == (0, {"1"}), done


def test_no_rights_are_lent_by_the_broker(anyone: Place, host: Host) -> None:
    """Another door: what carries out the call is not confined as the command is."""
    secret = anyone.outside / "closed"
    secret.mkdir()
    with socket.socket(1) as server:
        server.bind(str(secret / "s"))
        server.listen()
        anyone.own()
        (secret / "s").chmod(0o000)
        script = (
            "import os, socket, sys\n"
            "def tried(act):\n"
            "    try: act(); return 'done'\n"
            "    except OSError as exc: return exc.errno\n"
            "print(tried(lambda: socket.socket(1).connect(sys.argv[1])))\n"
            "print(tried(lambda: socket.socket(1).bind('/usr/s')))\n"
            "print(tried(lambda: socket.socket(1).bind('.git/s')))\n"
            "print(tried(lambda: socket.socket(2).bind(('127.0.0.1', 1))))\n"
        )
        low = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text().strip()
        done = anyone.run(
            *("--network", "on", "--allow-socket", str(secret / "s")),
            *("--", anyone.python, "-c", script, str(secret / "s")),
        )
    assert done.out.split()[:3] == ["13", "30", "30"], done
    assert done.out.split()[3] == ("done" if low == "0" else "13"), done


def test_a_broker_that_died_lets_nothing_through(anyone: Place, host: Host) -> None:
    server = host.listen(str(host.tmp / "host"))
    script = (
        "import socket, sys\n"
        "def tried():\n"
        "    try: socket.socket(1).connect(sys.argv[1]); return 'done'\n"
        "    except OSError as exc: return exc.errno\n"
        "print(tried(), flush=True); sys.stdin.readline(); print(tried(), flush=True)\n"
    )
    with anyone.start("--", anyone.python, "-c", script, str(host.tmp / "host")) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"13\n"
        [broker] = _find_brokers(child.pid)
        _kill_and_await(broker)
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"38\n"  # ENOSYS
    assert not came(server)


def _find_brokers(above: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = [line.split(None, 2) for line in found]
    return [int(pid) for pid, parent, comm in rows if int(parent) == above and comm == "holdfast-broker"]


def _kill_and_await(pid: int) -> None:
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        assert select.select([fd], [], [], patient(10))[0], "it does not end"
    finally:
        os.close(fd)
