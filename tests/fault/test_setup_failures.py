"""A host that refuses: which cause is named, what is used instead, and that nothing runs without limits.

One row for each way in which setting up a sandbox is known to fail. The refusal is the kernel's own, in
a process tree of its own (`tests/support/faults.py`); the same refusal is shown to bubblewrap and to
unshare, whose texts must lead to the same cause.
"""

import contextlib
import enum
import errno
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.plan.select import WEAKNESSES
from holdfast.sandbox.reasons import fingerprints
from holdfast.sandbox.reasons.fingerprint_table import SETUP_ROWS
from tests.support import identity, warm
from tests.support.exec_command import WAIT_S, Done, Place, place
from tests.support.faults import NONE, Fault, Rule, no_new, refused, run
from tests.support.peer import Peer, Refused, connected
from tests.support.root_only import IDENTITIES, root_only
from tests.support.rooted import REASON, rooted
from tests.support.servers import ServerProcess

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]


class Tier(enum.Enum):
    """What confines the command in the end."""

    NAMESPACES = "namespaces"
    AS_ROOT = "namespaces, without a user namespace"
    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    NOTHING = "nothing: it does not run"


ROOT: Final = (0,)
AS_ROOT: Final = root_only("to be tried as root")
USER: Final = (identity.USER,)
EVERYONE: Final = (0, identity.USER)


@dataclass(frozen=True)
class Row:
    """One fault. `id` is the cause that we name; None where nothing is lost by it."""

    name: str
    fault: Fault
    id: str | None
    tier: Tier | Mapping[int, Tier]
    bwrap: str | None = None  # the cause in what bubblewrap says; None: it works
    unshare: str | None = None
    landlock: str | None = None  # the cause when Landlock is all that may be used; None: it works
    weakened: tuple[str, ...] = ()
    users: tuple[int, ...] = EVERYONE

    @property
    def marks(self) -> "tuple[pytest.MarkDecorator, ...]":
        """For a test that takes the row once, as the last of its users."""
        return () if self.users[-1] else (AS_ROOT,)

    def tier_of(self, uid: int) -> Tier:
        return self.tier if isinstance(self.tier, Tier) else self.tier[uid]


ROOT_CAN: Final = {0: Tier.AS_ROOT, identity.USER: Tier.LANDLOCK}
NEW_MOUNT_CALLS: Final = ("open_tree", "mount_setattr", "fsopen", "move_mount")
SIOCSIFFLAGS, AF_NETLINK, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 0x8914, 16, 22, 24, 38


def _limit(kind: str, tier: Tier | Mapping[int, Tier]) -> Row:
    cause = "userns.enospc"
    return Row(f"limit of {kind} namespaces", Fault(limits=(kind,)), cause, tier, cause, cause)


def _no_user_namespace(code: int, cause: str, ours: str | None = None) -> Row:
    fault = Fault(calls=no_new(kernel.CLONE_NEWUSER, code))
    return Row(f"user namespace {errno.errorcode[code]}", fault, ours or cause, ROOT_CAN, cause, cause)


def _no_landlock(code: int, cause: str) -> Row:
    fault = Fault(calls=refused("landlock_create_ruleset", code))
    return Row(
        f"landlock {errno.errorcode[code]}", fault, None, Tier.NAMESPACES,
        landlock=cause, weakened=("landlock",),
    )  # fmt: skip


def _without_new_mounts(code: int, cause: str, *calls: str) -> Row:
    fault = Fault(calls=tuple(Rule(call, code) for call in calls))
    return Row(f"{calls[0]} {errno.errorcode[code]}", fault, cause, Tier.BWRAP)


ROWS: Final = (
    Row("no fault", NONE, None, Tier.NAMESPACES),
    _limit("user", ROOT_CAN),
    _limit("mnt", Tier.LANDLOCK),
    _limit("pid", Tier.LANDLOCK),
    _limit("net", Tier.LANDLOCK),
    _no_user_namespace(errno.EPERM, "userns.eperm"),
    _no_user_namespace(errno.EINVAL, "userns.einval"),
    _no_user_namespace(errno.EACCES, "userns.eacces"),
    _no_user_namespace(errno.ENOSYS, "userns.other"),
    # The errno of a limit; said in words it could be any.
    _no_user_namespace(errno.EUSERS, "userns.other", ours="userns.enospc"),
    Row(
        "root without CAP_SETFCAP", Fault(without=("setfcap",)), "uidmap.eperm", Tier.AS_ROOT,
        "uidmap.eperm", "uidmap.eperm", users=ROOT,
    ),
    Row(
        "inside a read-only Landlock sandbox", Fault(landlock=("read",)), "uidmap.eacces", Tier.LANDLOCK,
        "uidmap.eacces", "uidmap.eacces",
    ),
    Row(
        "read-only /proc", Fault(read_only=("/proc",)), "uidmap.erofs", ROOT_CAN,
        "uidmap.erofs", "uidmap.erofs",
    ),
    # What stops bubblewrap costs us only the fresh /proc.
    Row(
        "masked /proc/sys", Fault(covered=("/proc/sys",)), "proc.masked", Tier.NAMESPACES,
        "proc.absent", "proc.masked", weakened=("proc",),
    ),
    Row(
        "covered entry of /proc", Fault(covered=("/proc/version",)), "proc.masked", Tier.NAMESPACES,
        "proc.masked", "proc.masked", weakened=("proc",),
    ),
    # We need no netlink for the loopback interface.
    Row(
        "no netlink socket", Fault(calls=refused("socket", errno.EPERM, equals=AF_NETLINK)), None,
        Tier.NAMESPACES, "lo.socket",
    ),
    Row("no bind", Fault(calls=refused("bind", errno.EPERM)), None, Tier.NAMESPACES, "lo.bind"),
    Row(
        "no interface flags", Fault(calls=refused("ioctl", errno.EPERM, argument=1, equals=SIOCSIFFLAGS)),
        "lo.newaddr", Tier.NAMESPACES, weakened=("loopback",),
    ),
    Row(
        "no network namespace", Fault(calls=no_new(kernel.CLONE_NEWNET, errno.EPERM)), "netns.refused",
        Tier.LANDLOCK, "userns.eperm", "userns.eperm",
    ),
    Row(
        "inside a Landlock sandbox that may write", Fault(landlock=("write",)), "mount.eperm", Tier.LANDLOCK,
        "mount.eperm", "mount.eperm",
    ),
    # We never call mount(2) or pivot_root(2).
    Row(
        "mount EPERM", Fault(calls=refused("mount", errno.EPERM)), None, Tier.NAMESPACES,
        "mount.eperm", "mount.eperm",
    ),
    Row(
        "mount EACCES", Fault(calls=refused("mount", errno.EACCES)), None, Tier.NAMESPACES,
        "mount.eperm", "mount.eperm",
    ),
    Row(
        "no pivot_root", Fault(calls=refused("pivot_root", errno.EPERM)), None, Tier.NAMESPACES,
        "mount.eperm",
    ),
    Row(
        "pivot_root EINVAL", Fault(calls=refused("pivot_root", errno.EINVAL)), None, Tier.NAMESPACES,
        "mount.rootfs",
    ),
    _without_new_mounts(errno.ENOSYS, "mount.enosys", *NEW_MOUNT_CALLS),
    _without_new_mounts(errno.EPERM, "mount.eperm", *NEW_MOUNT_CALLS),
    _without_new_mounts(errno.ENOENT, "mount.source", "move_mount"),
    _without_new_mounts(errno.ENOMEM, "mount.other", "open_tree"),
    Row(
        "no mount call at all", Fault(calls=tuple(Rule(n, errno.EPERM) for n in ("mount", *NEW_MOUNT_CALLS))),
        "mount.eperm", Tier.LANDLOCK, "mount.eperm", "mount.eperm",
    ),
    Row(
        "no_new_privs refused", Fault(calls=refused("prctl", errno.EPERM, equals=PR_SET_NO_NEW_PRIVS)),
        "nnp.eperm", Tier.NOTHING, "nnp.eperm", landlock="nnp.eperm",
    ),
    Row(
        "seccomp refused",
        Fault(calls=(Rule("prctl", errno.EPERM, equals=PR_SET_SECCOMP), Rule("seccomp", errno.EPERM))),
        "seccomp.refused", Tier.NOTHING, landlock="seccomp.refused",
    ),
    _no_landlock(errno.ENOSYS, "landlock.absent"),
    _no_landlock(errno.EOPNOTSUPP, "landlock.disabled"),
    _no_landlock(errno.EPERM, "landlock.refused"),
    Row(
        "sixteen Landlock sandboxes", Fault(landlock=("scope",) * 16), None, Tier.NAMESPACES,
        landlock="landlock.layers", weakened=("landlock",),
    ),
    Row(
        "ambient capabilities", Fault(ambient=("net_raw",)), None, Tier.NAMESPACES,
        "caps.unexpected", users=USER,
    ),
)  # fmt: skip
CASES: Final = [
    pytest.param(row, uid, id=f"{row.name}, {'user' if uid else 'root'}", marks=() if uid else AS_ROOT)
    for row in ROWS
    for uid in row.users
    # Root has one way more: of interest where the first is refused.
    if uid == row.users[-1] or row.fault is NONE or row.tier_of(uid) not in (Tier.NAMESPACES, Tier.NOTHING)
]

# Causes that no row above produces, and why.
ELSEWHERE: Final = {
    "apparmor.userns": "needs a kernel with AppArmor; by its texts alone, below",
    "proc.absent": "said by bubblewrap alone: row `masked /proc/sys`",
    "caps.refused": "test_capabilities_that_cannot_be_dropped_stop_everything_that_must_drop_them",
    "chdir.failed": "test_a_directory_that_the_policy_hides_is_no_place_to_start",
    "landlock.grants": "needs a directory of thousands of entries, no fault of the host",
    "exec.missing": "no fault of the host: tests/integration/test_exec_command.py",
    "exec.denied": "no fault of the host: tests/integration/test_exec_command.py",
    "exec.failed": "no fault of the host: tests/integration/test_exec_command.py",
}


@pytest.fixture
def user() -> Iterator[Place]:
    with place(identity.USER) as made:
        yield made


def confined(where: Place, fault: Fault, *flags: str, path: str | None = None) -> tuple[Done, dict[str, Any]]:
    """Run a script that says where it runs and tries to write; what it said, and the report about it."""
    script = f"echo ran; cat /proc/self/uid_map; for f in {where.outside}/new new; do echo x > $f; done; true"
    words = ["--read-only", "--json", *flags, "--", "sh", "-c", script]
    env = where.env() | ({} if path is None else {"PATH": path})
    if not fault.needs_exec:
        done = warm.of(where.uid).run(
            ["exec", *words], env=env, cwd=where.workspace, timeout=WAIT_S * 2, fault=fault
        )
    else:
        done = subprocess.run(
            fault.wrap(where.uid, where.command(*words)),
            cwd=where.workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S * 2,
            check=False,
        )
    report: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    assert not (where.outside / "new").exists()
    assert not (where.workspace / "new").exists()
    return Done(done.returncode, done.stdout, done.stderr), report


def tier(done: Done, report: dict[str, Any]) -> Tier:
    """What confined it, by its own account and by what the command saw."""
    if report["enforcement"] is None:
        assert (done.code, done.out) == (125, "")
        return Tier.NOTHING
    assert done.code == 0, done.err
    ran, user_ids = done.out.splitlines()
    assert ran == "ran"
    backend = Tier(report["enforcement"]["backend"])
    return Tier.AS_ROOT if backend is Tier.NAMESPACES and user_ids.split()[2] != "1" else backend


def remedy(cause: str) -> str:
    return next(row.remedy for row in SETUP_ROWS if row.id == cause)


@pytest.mark.parametrize(("row", "uid"), CASES)
def test_the_strongest_that_is_left_is_used_and_the_cause_is_named(row: Row, uid: int) -> None:
    with place(uid) as where:
        done, report = confined(where, row.fault)
    expected = row.tier_of(uid)
    assert tier(done, report) is expected
    if expected is Tier.NOTHING:
        assert row.id is not None
        error = report["error"]
        assert (error["fingerprint"], error["remedy"]) == (row.id, remedy(row.id))
        assert f"[{row.id}]" in error["message"]
        return
    held = report["enforcement"]
    assert held["missing"] == []
    assert held["fingerprint"] == row.id
    if expected in (Tier.NAMESPACES, Tier.AS_ROOT):
        assert held["weakened"] == [WEAKNESSES[word] for word in row.weakened]
    if row.id is not None and (expected not in (Tier.NAMESPACES, Tier.AS_ROOT) or row.weakened):
        assert remedy(row.id) in held["remedies"]


def by_name() -> Iterator[tuple[Row, str, str | None]]:
    """Every backend where it works, and every one that a fault takes away."""
    for row in ROWS:
        ours = row.id if row.tier_of(row.users[-1]) is Tier.NOTHING else None
        for backend, cause in (("namespaces", ours), ("bwrap", row.bwrap), ("landlock", row.landlock)):
            if cause == "proc.masked":
                yield row, backend, None  # with bubblewrap we do without a fresh /proc, as by ourselves
            elif cause is not None or row.fault is NONE:
                yield row, backend, cause


@pytest.mark.parametrize(
    ("row", "backend", "cause"),
    [pytest.param(*case, id=f"{case[0].name}, {case[1]}", marks=case[0].marks) for case in by_name()],
)
def test_a_backend_asked_for_by_name_works_or_says_why_not(row: Row, backend: str, cause: str | None) -> None:
    with place(row.users[-1]) as where:
        done, report = confined(where, row.fault, "--backend", backend)
    if cause is None:
        assert tier(done, report) is Tier(backend)
        weakened = report["enforcement"]["weakened"]
        assert all(WEAKNESSES[word] in weakened for word in row.weakened)
    else:
        assert tier(done, report) is Tier.NOTHING
        assert (report["error"]["fingerprint"], report["error"]["remedy"]) == (cause, remedy(cause))


BWRAP: Final = ("--unshare-user", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
UNSHARE: Final = ("--user", "--mount", "--pid", "--fork", "--net", "--map-root-user", "--mount-proc")


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=row.marks) for row in ROWS])
def test_what_other_tools_say_about_the_same_fault_leads_to_its_cause(row: Row) -> None:
    tried = {"bwrap": (BWRAP, row.bwrap), "unshare": (UNSHARE, row.unshare)}
    for tool, (options, cause) in tried.items():
        done = run(row.fault, row.users[-1], tool, *options, "--", "echo", "ran")
        found = [match.fingerprint.id for match in fingerprints.match(done.stderr)]
        assert (found, done.stdout) == (([], "ran\n") if cause is None else ([cause], "")), done.stderr


def test_every_known_cause_is_reproduced_or_says_why_not() -> None:
    shown = {cause for row in ROWS for cause in (row.id, row.bwrap, row.unshare, row.landlock) if cause}
    known = {row.id for row in SETUP_ROWS if not row.id.startswith("bwrap.")}
    assert known == shown | ELSEWHERE.keys()


# --- the texts


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--no-such-option", "x"), "bwrap.option"),
        (("--ro-bind", "/no/such/path", "/mnt", "true"), "bwrap.source"),
        (("--ro-bind", "/", "/", "no-such-program"), "bwrap.exec"),
        (("--ro-bind", "/", "/", "--dir", "/usr/.holdfast-test/x", "true"), "bwrap.mkdir"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_bubblewrap_says_about_its_own_arguments_is_understood(
    options: tuple[str, ...], cause: str
) -> None:
    done = run(NONE, identity.USER, "bwrap", *options)
    assert done.returncode != 0
    assert [match.fingerprint.id for match in fingerprints.match(done.stderr)] == [cause], done.stderr


def test_a_shell_that_finds_no_bubblewrap_is_understood() -> None:
    done = run(NONE, identity.SELF, "env", "PATH=/nowhere", "/bin/sh", "-c", "bwrap --version")
    assert [match.fingerprint.id for match in fingerprints.match(done.stderr)] == ["bwrap.missing"]


@AS_ROOT
def test_root_without_net_admin_breaks_only_bubblewraps_loopback() -> None:
    fault = Fault(without=("net_admin",))
    done = run(fault, 0, "bwrap", "--unshare-net", "--ro-bind", "/", "/", "true")
    assert [match.fingerprint.id for match in fingerprints.match(done.stderr)] == ["lo.newaddr"], done.stderr
    with place(identity.SELF) as where:
        assert tier(*confined(where, fault)) is Tier.NAMESPACES


@pytest.mark.parametrize(
    "text",
    [
        'audit: type=1400 apparmor="DENIED" operation="userns_create" class="namespace" info="Userns create'
        ' restricted - failed to find unprivileged_userns profile" error=-13 profile="unconfined"',
        'audit: type=1400 apparmor="AUDIT" operation="userns_create" class="namespace" info="Userns create'
        ' - transitioning profile" profile="unconfined" target="unprivileged_userns"',
        'audit: apparmor="DENIED" operation="capable" profile="unprivileged_userns" capname="net_admin"',
        'apparmor="DENIED" operation="capable" info="User namespace creation restricted" error=-13',
    ],
)
def test_the_log_of_a_kernel_with_apparmor_is_understood(text: str) -> None:
    assert [match.fingerprint.id for match in fingerprints.match(text)] == ["apparmor.userns"]


# --- what bubblewrap cannot do here


@contextlib.contextmanager
def _tools(where: Place, script: str | None) -> Iterator[str]:
    """A PATH on which bubblewrap is this script, or nothing."""
    folder = where.top / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "true"):
        (folder / name).symlink_to(f"/bin/{name}")
    where.own()
    if script is None:
        yield str(folder)
        return
    with rooted() as tools:
        (tools / "bwrap").write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (tools / "bwrap").chmod(0o755)
        yield f"{tools}:{folder}"


HIDES: Final = (
    'case $1 in --help) /usr/bin/bwrap --help | grep -v -e {0} ;; *) exec /usr/bin/bwrap "$@";; esac'
)


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        pytest.param(None, "bwrap.missing", id="no bwrap"),
        pytest.param(HIDES.format("--perms"), "bwrap.option", id="no --perms", marks=root_only(REASON)),
        pytest.param("exit 1", "bwrap.option", id="broken", marks=root_only(REASON)),
    ],
)
def test_a_bubblewrap_that_cannot_do_it_is_not_used(user: Place, script: str | None, cause: str) -> None:
    with _tools(user, script) as path:
        done, report = confined(user, NONE, "--backend", "bwrap", path=path)
        assert tier(done, report) is Tier.NOTHING
        assert (report["error"]["fingerprint"], report["error"]["remedy"]) == (cause, remedy(cause))
        fault = Fault(calls=tuple(Rule(call, errno.ENOSYS) for call in NEW_MOUNT_CALLS))
        assert tier(*confined(user, fault, path=path)) is Tier.LANDLOCK


# --- the rest


@pytest.mark.parametrize("uid", IDENTITIES)
def test_what_is_refused_is_told_in_two_lines(uid: int) -> None:
    fault = Fault(calls=refused("prctl", errno.EPERM, equals=PR_SET_NO_NEW_PRIVS))
    with place(uid) as where:
        done = subprocess.run(
            fault.wrap(uid, where.command("--", "sh", "-c", "echo ran; echo x > new")),
            cwd=where.workspace,
            env=where.env(),
            capture_output=True,
            text=True,
            timeout=WAIT_S * 2,
            check=False,
        )
        assert not (where.workspace / "new").exists()
    assert (done.returncode, done.stdout) == (125, "")
    reason, advice = done.stderr.splitlines()
    assert reason.startswith(
        "holdfast: sandbox intent cannot be enforced on this executor: user namespace: nnp"
    )
    assert advice == f"  try: {remedy('nnp.eperm')}"


def test_capabilities_that_cannot_be_dropped_stop_everything_that_must_drop_them() -> None:
    fault = Fault(calls=refused("prctl", errno.EPERM, equals=PR_CAPBSET_DROP))
    with place(identity.SELF) as where:
        done, report = confined(where, fault, "--backend", "namespaces")
    assert tier(done, report) is Tier.NOTHING
    assert report["error"]["fingerprint"] == "caps.refused"


def test_a_directory_that_the_policy_hides_is_no_place_to_start(user: Place) -> None:
    (user.top / "p.toml").write_text('filesystem = {":minimal" = "read"}', "utf-8")
    done = user.run("--json", "--profile", str(user.top / "p.toml"), "--", "echo", "ran")
    assert (done.code, done.out) == (125, "")
    assert json.loads(done.err)["error"]["fingerprint"] == "chdir.failed"


def test_where_no_message_can_be_sent_a_command_is_confined_all_the_same(user: Place) -> None:
    """The fault that bubblewrap takes for a missing loopback address. `exec` needs no message to anybody."""
    fault = Fault(calls=refused("sendto", errno.EPERM))
    said = run(fault, identity.USER, "bwrap", *BWRAP, "true").stderr
    assert [match.fingerprint.id for match in fingerprints.match(said)] == ["lo.newaddr"]
    assert tier(*confined(user, fault)) is Tier.NAMESPACES


# --- the server


def _policy(folder: Path) -> dict[str, Any]:
    everything = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
    return {
        "permissions": {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": [everything]},
            "network": "restricted",
        },
        "cwd": folder.as_uri(),
        "workspaceRoots": [folder.as_uri()],
        "windowsSandboxLevel": "disabled",
    }


@contextlib.asynccontextmanager
async def _serving(fault: Fault, home: Path) -> AsyncIterator[Peer]:
    """With a token: some faults put the server into namespaces of its own, and it cannot judge us there."""
    token = home / "token"
    token.write_text("let me in", "utf-8")
    auth = ("--ws-auth", "capability-token", "--ws-token-file", str(token))
    argv = fault.wrap(identity.SELF, [sys.executable, "-m", "holdfast", "serve", *auth])
    server = ServerProcess(argv, home)
    await server.start()
    try:
        headers = {"Authorization": "Bearer let me in"}
        async with connected(server.url, additional_headers=headers) as peer:
            await peer.initialize(holdfast=True)
            yield peer
    finally:
        await server.stop()


@pytest.mark.parametrize(
    "name", ["user namespace EPERM", "covered entry of /proc", "open_tree ENOSYS", "limit of net namespaces"]
)
async def test_the_server_says_what_it_used_and_why(tmp_path: Path, name: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    async with _serving(row.fault, tmp_path) as peer:
        script = "echo ran; cat /proc/self/uid_map; echo x > new"
        started = await peer.start("p", script, cwd=tmp_path.as_uri(), sandbox=_policy(tmp_path))
        await peer.closed("p")
        assert started["sandboxType"] == "linuxSeccomp"
        backend = Tier(started["enforcement"]["backend"])
        expected = row.tier_of(identity.SELF)
        assert backend is (Tier.NAMESPACES if expected is Tier.AS_ROOT else expected)
        assert started["enforcement"]["fingerprint"] == row.id
        assert peer.output("p").startswith(b"ran\n")
    assert not (tmp_path / "new").exists()


async def test_the_server_refuses_what_nothing_confines_and_still_runs_the_rest(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == "seccomp refused")
    async with _serving(row.fault, tmp_path) as peer:
        where = tmp_path.as_uri()
        with pytest.raises(Refused, match=r"\[seccomp\.refused\]"):
            await peer.start("p", "echo x > new", cwd=where, sandbox=_policy(tmp_path))
        await peer.start("q", "echo unconfined", cwd=where)
        await peer.closed("q")
        assert peer.output("q") == b"unconfined\n"
    assert not (tmp_path / "new").exists()
