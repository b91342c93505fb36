"""The parts of a Seatbelt profile that are the same for every policy. Pure module.

A profile is a list of rules over operations. Where two rules name the same operation the later one
that matches decides; a rule that names one operation (`file-write-unlink`) goes before one that names
its family (`file-write*`) wherever it stands. So nothing here grants a single operation on a path that
a policy could deny: a later denial of the family would not take it back.
"""

from collections.abc import Iterable
from typing import Final


def rule(head: str, filters: Iterable[str] = ()) -> str:
    """One rule, a filter on each line; without filters it is about everything."""
    return "\n  ".join((f"({head}", *filters)) + ")"


def named(kind: str, names: Iterable[str]) -> list[str]:
    """One filter per name; the names are ours, never a caller's."""
    return [f'({kind} "{name}")' for name in names]


# What language runtimes ask about the machine while they start.
_SYSCTLS: Final = (
    *(f"hw.{name}" for name in (
        "activecpu", "busfrequency_compat", "byteorder", "cacheconfig", "cachelinesize",
        "cachelinesize_compat", "cpufamily", "cpufrequency", "cpufrequency_compat", "cpusubfamily",
        "cputype", "l1dcachesize", "l1dcachesize_compat", "l1icachesize", "l1icachesize_compat",
        "l2cachesize", "l2cachesize_compat", "l3cachesize", "l3cachesize_compat", "logicalcpu",
        "logicalcpu_max", "machine", "memsize", "model", "ncpu", "nperflevels", "packages", "pagesize",
        "pagesize_compat", "physicalcpu", "physicalcpu_max", "tbfrequency", "tbfrequency_compat",
        "vectorunit",
    )),
    *(f"kern.{name}" for name in (
        "argmax", "boottime", "hostname", "maxfilesperproc", "maxproc", "ngroups", "osproductversion",
        "osrelease", "ostype", "osvariant_status", "osversion", "secure_kernel", "usrstack64", "version",
    )),
    "sysctl.proc_cputype",
    "vm.loadavg",
)  # fmt: skip
_SYSCTL_PREFIXES: Final = ("hw.optional.", "hw.perflevel", "kern.proc.pgrp.", "kern.proc.pid.")

_TERMINALS: Final = '(regex #"^/dev/ttys[0-9]+$")'

BASE: Final = "\n".join(
    (
        "(version 1)",
        "(deny default)",
        "; processes: start any, touch only those in here",
        "(allow process-exec)",
        "(allow process-fork)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "; the machine",
        rule(
            "allow sysctl-read",
            (*named("sysctl-name", _SYSCTLS), *named("sysctl-name-prefix", _SYSCTL_PREFIXES)),
        ),
        "; a question that Java asks and the kernel takes for a change",
        rule("allow sysctl-write", named("sysctl-name", ("kern.grade_cputype",))),
        rule("allow iokit-open", named("iokit-registry-entry-class", ("RootDomainUserClient",))),
        rule(
            "allow mach-lookup",
            named(
                "global-name",
                ("com.apple.system.opendirectoryd.libinfo", "com.apple.PowerManagement.control"),
            ),
        ),
        "; locks between processes, and the mark of the OpenMP library",
        "(allow ipc-posix-sem)",
        rule(
            "allow ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-unlink",
            ('(ipc-posix-name-regex #"^/__KMP_REGISTERED_LIB_[0-9]+$")',),
        ),
        "; a unix socket may be made, for pairs; reaching an address is another operation",
        rule("allow system-socket", ("(socket-domain AF_UNIX)",)),
        "; devices that hold nothing, and terminals opened in here",
        rule("allow file-read* file-write* file-ioctl", named("literal", ("/dev/null", "/dev/ptmx"))),
        rule("allow file-read*", named("literal", ("/dev/zero", "/dev/random", "/dev/urandom"))),
        "(allow pseudo-tty)",
        rule(
            "allow file-read* file-write*",
            (f'(require-all {_TERMINALS} (extension "com.apple.sandbox.pty"))',),
        ),
        "; the terminal that the command was given was opened outside",
        rule("allow file-ioctl", (_TERMINALS,)),
    )
)

# Only where everything is readable: the daemon reads the files for whoever asks.
PREFERENCES: Final = "\n".join(
    (
        "; preferences",
        "(allow user-preference-read)",
        rule("allow ipc-posix-shm-read*", named("ipc-posix-name-prefix", ("apple.cfprefs.",))),
        rule(
            "allow mach-lookup",
            (
                *named("global-name", ("com.apple.cfprefsd.agent", "com.apple.cfprefsd.daemon")),
                *named("local-name", ("com.apple.cfprefsd.agent",)),
            ),
        ),
    )
)

# Where a policy asks for what programs need in order to start: beyond the directories of every platform.
PLATFORM_ROOTS: Final = (
    "/Applications",
    "/Library/Apple",
    "/Library/Developer/CommandLineTools",
    "/Library/Frameworks",
    "/System/Library",
    "/System/Cryptexes",
    "/System/Volumes/Preboot/Cryptexes",
    "/private/etc",
    "/private/var/db/DarwinDirectory/local/recordStore.data",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
)
PLATFORM: Final = "\n".join(
    (
        "; what programs need in order to start",
        "; the loader lists the root directory",
        rule("allow file-read*", named("literal", ("/",))),
        rule(
            "allow mach-lookup",
            named(
                "global-name",
                ("com.apple.logd", "com.apple.system.logger", "com.apple.system.notification_center"),
            ),
        ),
    )
)

NETWORK_SERVICES: Final = "\n".join(
    (
        "; certificates, and how this machine is connected",
        rule("allow system-socket", ("(require-all (socket-domain AF_SYSTEM) (socket-protocol 2))",)),
        rule(
            "allow mach-lookup",
            named(
                "global-name",
                (
                    "com.apple.SecurityServer",
                    "com.apple.SystemConfiguration.DNSConfiguration",
                    "com.apple.SystemConfiguration.configd",
                    "com.apple.bsd.dirhelper",
                    "com.apple.networkd",
                    "com.apple.ocspd",
                    "com.apple.system.opendirectoryd.membership",
                    "com.apple.trustd",
                    "com.apple.trustd.agent",
                ),
            ),
        ),
        rule("allow sysctl-read", named("sysctl-name-prefix", ("net.routetable",))),
    )
)
