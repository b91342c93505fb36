"""What this host allows a sandbox to do, and what prevents the rest. Pure module."""

import errno
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from holdfast.sandbox.reasons import fingerprints

# linux/capability.h, in the order of their bits
CAPABILITIES: Final = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
    "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
    "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
    "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
    "checkpoint_restore",
)  # fmt: skip
_GVISOR: Final = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"  # gVisor's version text
_CONTAINER_GROUPS: Final = (  # in the name of a control group
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """The result of one attempt. `works` is None if it was not reached: `stage` failed before it."""

    name: str
    works: bool | None
    stage: str = ""
    errno: int = 0
    detail: str = ""

    def report(self) -> dict[str, object]:
        """The fact as plain values, with its cause and its remedy."""
        known = fingerprints.by_errno(self.stage, self.errno) if self.stage else None
        return {
            "name": self.name,
            "works": self.works,
            "stage": self.stage or None,
            "errno": errno.errorcode.get(self.errno),
            "detail": self.detail or None,
            "fingerprint": None if known is None else known.id,
            "remedy": None if known is None else known.remedy,
        }


@dataclass(frozen=True, slots=True)
class AppArmor:
    """AppArmor's effect on user namespaces of programs without a profile; None if there is no AppArmor."""

    profile: str | None
    restricts: bool | None


@dataclass(frozen=True, slots=True)
class Bwrap:
    path: str
    version: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """All facts that decide which sandbox works here."""

    facts: tuple[Fact, ...]
    kernel: str
    uid: int
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    filtered: bool  # we run under a seccomp filter
    container: str | None
    apparmor: AppArmor
    selinux: str | None
    userns_clone: bool | None  # Debian's switch; None where it does not exist
    limits: Mapping[str, int]  # kind of namespace -> how many are allowed
    landlock_abi: int
    bwrap: Bwrap | None

    def fact(self, name: str) -> Fact | None:
        return next((fact for fact in self.facts if fact.name == name), None)

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "kernel": self.kernel,
            "uid": self.uid,
            "capabilities": list(self.capabilities),
            "noNewPrivileges": self.no_new_privileges,
            "filtered": self.filtered,
            "container": self.container,
            "apparmor": asdict(self.apparmor),
            "selinux": self.selinux,
            "usernsClone": self.userns_clone,
            "limits": dict(self.limits),
            "landlockAbi": self.landlock_abi,
            "bwrap": None if self.bwrap is None else asdict(self.bwrap),
            "facts": [fact.report() for fact in self.facts],
        }


def fact_of(name: str, about: str, failed: str, code: int, detail: str) -> Fact:
    """A fact from an attempt's outcome: `about` is the stage it tests, `failed` the stage where it ended."""
    if not failed:
        return Fact(name, works=True, detail=detail)
    reached = failed == about or failed.startswith(f"{about}.")
    return Fact(name, False if reached else None, failed, code, detail)


def capabilities(mask: int) -> tuple[str, ...]:
    """The names of the bits; a capability that is newer than our table is named by its number."""
    return tuple(
        CAPABILITIES[bit] if bit < len(CAPABILITIES) else f"cap_{bit}"
        for bit in range(mask.bit_length())
        if mask >> bit & 1
    )


def container_of(readings: Mapping[str, str | None], variable: str) -> str | None:
    """The kind of container that we run in; `variable` is the value of $container, which some set."""
    if (readings.get("/proc/version") or "").strip() == _GVISOR:
        return "gvisor"
    if readings.get("/run/.containerenv") is not None:
        return "podman"
    if readings.get("/.dockerenv") is not None:
        return "docker"
    groups = readings.get("/proc/self/cgroup") or ""
    by_group = next((name for sign, name in _CONTAINER_GROUPS if sign in groups), None)
    return variable or by_group or None


def _switch(text: str | None) -> bool | None:
    return None if text is None else text.strip() != "0"


def _status(readings: Mapping[str, str | None], field: str, base: int = 10) -> int:
    found = re.search(rf"^{field}:\s*([0-9a-f]+)", readings.get("/proc/self/status") or "", re.MULTILINE)
    return int(found[1], base) if found else 0


def _bwrap(facts: Iterable[Fact]) -> Bwrap | None:
    found = next((fact.detail for fact in facts if fact.name == "bwrap" and fact.works), None)
    if found is None:
        return None
    version, _, path = found.partition(" ")
    return Bwrap(path, version)


def host_facts(
    facts: tuple[Fact, ...], readings: Mapping[str, str | None], *, uid: int, release: str, variable: str
) -> HostFacts:
    """Combine the facts with the contents of some files."""
    abi = next((fact.detail for fact in facts if fact.name == "landlock" and fact.works), "0")
    limits = {
        kind: int(text)
        for kind in ("user", "mnt", "pid", "net")
        if (text := (readings.get(f"/proc/sys/user/max_{kind}_namespaces") or "").strip()).isdigit()
    }
    selinux = _switch(readings.get("/sys/fs/selinux/enforce"))
    profile = (readings.get("/proc/self/attr/current") or "").strip("\0\n ") or None
    return HostFacts(
        facts,
        kernel=release,
        uid=uid,
        capabilities=capabilities(_status(readings, "CapEff", 16)),
        no_new_privileges=_status(readings, "NoNewPrivs") == 1,
        filtered=_status(readings, "Seccomp") == 2,
        container=container_of(readings, variable),
        apparmor=AppArmor(
            profile if selinux is None else None,
            _switch(readings.get("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")),
        ),
        selinux=None if selinux is None else "enforcing" if selinux else "permissive",
        userns_clone=_switch(readings.get("/proc/sys/kernel/unprivileged_userns_clone")),
        limits=limits,
        landlock_abi=int(abi),
        bwrap=_bwrap(facts),
    )
