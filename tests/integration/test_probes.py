"""Host facts on a real kernel: what it allows, what a fault takes away, and a stage that hangs."""

import errno
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.sandbox.host import probes
from holdfast.sandbox.host.hostfacts import HostFacts
from holdfast.sandbox.kernel import kernel
from tests.support import identity
from tests.support.exec_command import WAIT_S, Place, gone, place
from tests.support.faults import NONE, Fault, no_new, refused
from tests.support.root_only import IDENTITIES, root_only
from tests.support.rooted import REASON, rooted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

PATIENCE_S = (
    10 + uuid.uuid4().int % 10**6 / 10**6
)  # not the limit that users have: a busy machine must not look like one that hangs
PROBE = (
    "import asyncio, json; from holdfast.sandbox.host.probes import probe; "
    f"print(json.dumps(asyncio.run(probe(stage_s={PATIENCE_S})).report()))"
)
SIOCSIFFLAGS, PR_SET_SECCOMP = 0x8914, 22


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


def probed(where: Place, fault: Fault) -> dict[str, Any]:
    """The report of a probe under a fault."""
    done = subprocess.run(
        fault.wrap(where.uid, [where.python, "-c", PROBE]),
        env=where.env() | {"container": "a-test"},
        cwd=where.workspace,
        capture_output=True,
        timeout=WAIT_S * 2,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def works(report: dict[str, Any]) -> dict[str, bool | None]:
    return {fact["name"]: fact["works"] for fact in report["facts"] if fact["name"] != "bwrap"}


def cause(report: dict[str, Any], name: str) -> str | None:
    found: str | None = next(fact["fingerprint"] for fact in report["facts"] if fact["name"] == name)
    return found


async def test_every_stage_is_tried_and_nothing_is_left_behind() -> None:
    found: HostFacts = await probes.probe(stage_s=PATIENCE_S)
    assert {fact.name for fact in found.facts} >= {
        "user namespace",
        "uid map",
        "loopback",
        "seccomp",
        "bwrap",
    }
    assert found.uid == os.geteuid()
    assert found.kernel == os.uname().release
    assert gone(str(PATIENCE_S))


def test_a_host_without_faults_can_do_everything(anyone: Place) -> None:
    report = probed(anyone, NONE)
    assert set(works(report).values()) == {True}
    assert ("fresh proc as root" in works(report)) is (anyone.uid == 0)
    assert report["uid"] == anyone.uid
    assert ("sys_admin" in report["capabilities"]) is (anyone.uid == 0)
    assert report["landlockAbi"] > 0
    assert report["container"]


def test_what_a_refused_stage_would_have_led_to_is_unknown(anyone: Place) -> None:
    report = probed(anyone, Fault(calls=no_new(kernel.CLONE_NEWUSER, errno.EPERM)))
    found = works(report)
    assert report["filtered"] is True
    assert (found["user namespace"], found["uid map"], found["net namespace"]) == (False, None, None)
    assert cause(report, "loopback") == "userns.eperm"
    assert found["seccomp"] is True
    assert found.get("loopback as root", True) is True


@pytest.mark.parametrize(
    ("fault", "name", "expected"),
    [
        (Fault(limits=("user",)), "user namespace", "userns.enospc"),
        (Fault(read_only=("/proc",)), "uid map", "uidmap.erofs"),
        (Fault(landlock=("read",)), "uid map", "uidmap.eacces"),
        (Fault(calls=refused("mount_setattr", errno.ENOSYS)), "mount propagation", "mount.enosys"),
        (Fault(landlock=("write",)), "mount calls", "mount.eperm"),
        (Fault(limits=("pid",)), "pid namespace", "userns.enospc"),
        (Fault(covered=("/proc/version",)), "fresh proc", "proc.masked"),
        (Fault(calls=no_new(kernel.CLONE_NEWNET, errno.EPERM)), "net namespace", "netns.refused"),
        (
            Fault(calls=refused("ioctl", errno.EPERM, argument=1, equals=SIOCSIFFLAGS)),
            "loopback",
            "lo.newaddr",
        ),
        (Fault(calls=refused("prctl", errno.EPERM, equals=PR_SET_SECCOMP)), "seccomp", "seccomp.refused"),
        (Fault(calls=refused("landlock_create_ruleset", errno.EOPNOTSUPP)), "landlock", "landlock.disabled"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_fault_takes_away_is_named(fault: Fault, name: str, expected: str) -> None:
    with place(identity.USER) as where:
        report = probed(where, fault)
    assert works(report)[name] is False
    assert cause(report, name) == expected


def test_a_probe_needs_no_messages_to_itself() -> None:
    """No event loop can be woken by a thread here, so none may be waited for."""
    with place(identity.USER) as where:
        assert works(probed(where, Fault(calls=refused("sendto", errno.EPERM))))["user namespace"] is True


HANGS = """
import json, os, sys, time
from holdfast.sandbox.kernel.kernel import StageFailed
from holdfast.sandbox.host.stages import Probe, try_all

def hang():
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", sys.argv[1]])
    time.sleep(1000)

def fail():
    raise StageFailed("userns", 1)

wanted = {"a": Probe("x", lambda: "fine"), "b": Probe("x", hang), "c": Probe("userns", fail)}
wanted["d"] = Probe("x", lambda: 1 // 0)
try_all(wanted, limit_s=3, tell=lambda line: print(json.dumps(line), flush=True))
"""


def test_a_stage_that_hangs_is_ended_with_what_it_started_and_harms_no_other() -> None:
    mark = f"9{uuid.uuid4().int % 10**7:07}"
    done = subprocess.run(
        [sys.executable, "-c", HANGS, mark], capture_output=True, timeout=WAIT_S, check=True, text=True
    )
    told = {name: tuple(rest) for _, name, *rest in map(json.loads, done.stdout.splitlines())}
    assert told["b"] == ("x", "x", errno.ETIMEDOUT, "")
    assert told["c"] == ("userns", "userns", errno.EPERM, "")
    assert told["d"] == ("x", "internal", errno.EIO, "")
    assert told["a"] == ("x", "", 0, "fine")
    assert gone(mark)


@root_only(REASON)
async def test_a_bubblewrap_that_hangs_delays_nobody_and_is_ended() -> None:
    mark = f"9{uuid.uuid4().int % 10**7:07}"
    with rooted() as tools:
        (tools / "bwrap").write_text(f"#!/bin/sh\nexec sleep {mark}\n", "utf-8")
        (tools / "bwrap").chmod(0o755)
        found = await probes.probe({"PATH": str(tools)})
    fact = found.fact("bwrap")
    assert fact is None or fact.works is not True
    assert gone(mark)


async def test_a_bubblewrap_that_somebody_else_could_replace_is_not_even_started(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", "utf-8")
    (tmp_path / "bwrap").chmod(0o755)
    await probes.probe({"PATH": str(tmp_path)})
    assert not (tmp_path / "ran").exists()
