"""12: with Landlock alone nothing outlives its command, however fast it forks away from whoever kills it."""

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.sandbox.kernel import cgroup
from holdfast.sandbox.kernel.cgroup import Hierarchies
from tests.support import identity
from tests.support.exec_command import WAIT_S, Place, place
from tests.support.root_only import IDENTITIES, root_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

# Chains of processes, each of which forks and is gone at once, in a session of its own. Every link notes in
# shared memory that its chain lives, and one that finds another chain dead puts a new one in its place:
# whoever kills them one after another never comes to an end. All hold one lock, by which they are found: a
# list of processes is too slow to name any of them. Bounded by time, and in how many are replaced.
CHURN = """
import fcntl, mmap, os, struct, sys, time
CHAINS, DEAD_S, REPLACED = 12, 0.1, 3000
end = time.monotonic() + float(sys.argv[1])
fcntl.flock(os.open("lock", os.O_RDWR), fcntl.LOCK_EX)
seen = mmap.mmap(-1, 8 * (CHAINS + 1))
note = lambda place, value: struct.pack_into("d", seen, 8 * place, value)
noted = lambda place: struct.unpack_from("d", seen, 8 * place)[0]
for chain in range(CHAINS):
    note(chain, time.monotonic())
ready, told = os.pipe()
for chain in range(CHAINS):
    if os.fork() == 0:
        os.close(1); os.close(2)
        os.write(told, b"x")
        other = chain
        while (now := time.monotonic()) < end:
            if os.fork():
                os._exit(0)
            os.setsid()
            note(chain, now)
            other = (other + 1) % CHAINS
            if now - noted(other) > DEAD_S and noted(CHAINS) < REPLACED:
                note(other, now)
                note(CHAINS, noted(CHAINS) + 1)
                if os.fork() == 0:
                    chain = other
        os._exit(0)
for _ in range(CHAINS):
    os.read(ready, 1)
os._exit(0)
"""
CHURNS_S = "15"  # longer than anybody needs who ends it


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        (made.workspace / "lock").touch()
        made.own()
        yield made


def outlived(where: Place) -> bool:
    """Does anybody hold the lock?"""
    with open(where.workspace / "lock", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def churn(where: Place, *flags: str, env: dict[str, str] | None = None) -> None:
    command = [where.python, "-I", "-S", "-c", CHURN, CHURNS_S]
    done = where.call(where.argv(*flags, "--", *command), env=env or {})
    assert done.code == 0, done.err


def test_without_us_it_outlives_its_parent(anyone: Place) -> None:
    anyone.call(anyone.as_user([anyone.python, "-I", "-S", "-c", CHURN, "1"]))
    assert outlived(anyone)
    with open(anyone.workspace / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the last of them is gone


async def test_nothing_outlives_a_command_of_a_server() -> None:
    """There nobody looks once more when the command has ended: its keeper alone sees to it."""
    serve = ["serve", "--listen", "stdio", "--backend", "landlock", "--degraded"]
    with place(identity.SELF) as where:
        (where.workspace / "lock").touch()
        async with holdfast.connect([sys.executable, "-m", "holdfast", *serve]) as environment:
            command = [where.python, "-I", "-S", "-c", CHURN, CHURNS_S]
            policy = holdfast.Policy.workspace_write(str(where.workspace))
            done = await environment.run(command, cwd=str(where.workspace), policy=policy)
            assert done.code == 0, done.stderr
            assert done.enforcement is not None
            assert done.enforcement.backend == "landlock"
            assert not outlived(where)


@pytest.mark.parametrize("backend", ["namespaces", "bwrap", "landlock"])
def test_nothing_outlives_its_command(anyone: Place, backend: str) -> None:
    churn(anyone, "--backend", backend)
    assert not outlived(anyone)


def test_nor_on_a_kernel_whose_landlock_keeps_no_signals_in(anyone: Place) -> None:
    """There the keeper kills until none is left; root has a control group besides."""
    flags = ("--backend", "landlock", "--degraded")
    churn(anyone, *flags, env={"HOLDFAST_FAKE_LANDLOCK_ABI": "5"})
    assert not outlived(anyone)


def test_nor_does_what_is_not_confined_at_all(anyone: Place) -> None:
    churn(anyone, "--full-access", "--network", "on")
    assert not outlived(anyone)


@root_only("only root can make control groups here")
@pytest.mark.parametrize("version", ["freezer", "second"])
def test_a_control_group_ends_all_that_is_in_it(version: str) -> None:
    """By the first version's freezer, and by the second's own file."""
    found = cgroup.find()
    where = Hierarchies(found.first) if version == "freezer" else found._replace(first={})
    with place(0) as made:
        (made.workspace / "lock").touch()
        groups = cgroup.make("test", (), where)
        assert groups is not None
        subprocess.run(
            [made.python, "-I", "-S", "-c", CHURN, CHURNS_S],
            cwd=made.workspace,
            preexec_fn=groups.enter,
            check=True,
            timeout=WAIT_S,
        )
        assert outlived(made)
        groups.kill()
        with open(made.workspace / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as soon as the last of them is gone
        deadline = time.monotonic() + WAIT_S
        while not groups.remove():
            assert time.monotonic() < deadline


def test_the_keeper_kills_nobody_but_its_own(anyone: Place) -> None:
    """Everything of the domain dies at once; a neighbour of the same user does not notice."""
    with anyone.start("--backend", "landlock", "--", "cat") as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None
        churn(anyone, "--backend", "landlock")
        neighbour.stdin.write(b"still here\n")
        neighbour.stdin.flush()
        assert neighbour.stdout.readline() == b"still here\n"
