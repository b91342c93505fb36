"""A confined command that only reads takes a lease, and whoever opens the file for writing outside waits."""

from collections.abc import Iterator

import pytest

from tests.support.exec_command import Place, place
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row

# F_SETLEASE for reading, F_NOTIFY on a directory, F_SETDELEG (Linux 6.19) on a file.
SCRIPT = (
    "import errno, fcntl, os, signal, struct, sys\n"
    "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
    "def tried(fd, command, wanted):\n"
    "    try: fcntl.fcntl(fd, command, wanted); return 'done'\n"
    "    except OSError as exc: return errno.errorcode[exc.errno]\n"
    "file, folder = os.open(sys.argv[1], os.O_RDONLY), os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)\n"
    "print(tried(file, 1024, 0), tried(folder, 1026, 2), tried(file, 1040, struct.pack('IHH', 0, 0, 0)))\n"
)


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@every_row("backend", ["namespaces", "bwrap", "landlock"])
def test_no_lease_is_taken_on_a_file_of_the_host(anyone: Place, backend: str) -> None:
    file = anyone.outside / "f"
    file.write_text("x")
    anyone.own()
    command = [anyone.python, "-c", SCRIPT, str(file)]
    lease, notify, delegation = anyone.call(anyone.as_user(command)).out.split()
    assert (lease, notify) == ("done", "done"), "without the sandbox it is taken"
    assert delegation in ("done", "EINVAL"), "before Linux 6.19 there is none"
    done = anyone.run("--read-only", "--backend", backend, "--", *command)
    assert done.out.split() == ["EPERM"] * 3, done
