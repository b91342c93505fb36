"""The guarantees of each backend, and the escape attempts that demonstrate them. Pure module.

The texts appear in docs/reference/sandbox.md. A verdict is about a backend at its best, on a host that has
what it needs. What a host lacks is reported in the answer to every start. `attempts` are ids of
`holdfast.doctor.escape.attempts`. A test checks that they exist and that no attempt is left out, so the
promises and the attempts do not drift apart.
"""

import enum
from dataclasses import dataclass
from typing import Final

BACKENDS: Final = ("namespaces", "bwrap", "landlock")


class GuaranteeLevel(enum.StrEnum):
    HOLDS = "holds"
    PARTLY = "partly"
    NOT = "no"


@dataclass(frozen=True, slots=True)
class Holding:
    """How far a guarantee holds, with the mechanism or the reason."""

    verdict: GuaranteeLevel
    why: str


@dataclass(frozen=True, slots=True)
class GuaranteeRow:
    """One guarantee. Without `attempts` it is covered by tests of its own, or not tested."""

    id: str
    promise: str
    namespaces: Holding
    bwrap: Holding
    landlock: Holding
    attempts: tuple[str, ...] = ()

    def under(self, backend: str) -> Holding:
        """How far it holds with one of `BACKENDS`."""
        columns = (self.namespaces, self.bwrap, self.landlock)
        return dict(zip(BACKENDS, columns, strict=True))[backend]


def holds(why: str) -> Holding:
    return Holding(GuaranteeLevel.HOLDS, why)


def partly(why: str) -> Holding:
    return Holding(GuaranteeLevel.PARTLY, why)


def no(why: str) -> Holding:
    return Holding(GuaranteeLevel.NOT, why)


def tried(ids: str) -> tuple[str, ...]:
    """Split a string of attempt ids."""
    return tuple(ids.split())


_VIEW: Final = holds("As with namespaces: the view is the same, made by another program.")
_FILTER: Final = holds("The seccomp filter is the same.")
_LIMITS: Final = holds(
    "Control groups where they can be had; else rlimits, and what its processes use is looked at, which the "
    "start says: then memory can be passed for a moment, and a program can undo the limit on processors."
)

FILES: Final = (
    GuaranteeRow(
        "write-outside",
        "Nothing outside the writable roots is created, changed, moved or removed",
        holds("The view is read-only except for the writable roots; Landlock grants the same once more."),
        _VIEW,
        holds("Landlock grants writing below the writable roots only; moving across that border fails too."),
        tried(
            "create-outside overwrite-outside append-outside truncate-outside remove-outside rename-outside "
            "mkdir-outside symlink-outside fifo-made-outside create-etc create-root create-home dotdot "
            "link-out link-to-file-out links-chained-out descriptor-of-outside reopen-proc-fd reopen-dev-fd "
            "reopen-path-fd tmpfile-outside through-proc-root through-proc-cwd hardlink-of-outside "
            "hardlink-to-outside move-outside move-in exchange-outside tmpfile-linked-outside "
            "descriptor-linked-in"
        ),
    ),
    GuaranteeRow(
        "metadata",
        "Permissions, owners, times and attributes of what is read-only or denied do not change",
        holds("A read-only mount refuses them like any other change."),
        _VIEW,
        partly(
            "Landlock does not look at them: mode, group and times of one's own files can be changed. "
            "Attributes, flags and set-user-id bits are refused by seccomp."
        ),
        tried(
            "chmod-outside fchmod-outside chown-outside utime-outside setxattr-outside flags-outside "
            "locked-chmod secret-chmod"
        ),
    ),
    GuaranteeRow(
        "host-pipes",
        "A named pipe of the host cannot be written to",
        holds("By Landlock. Read-only mounts let it pass; without Landlock the start says so."),
        no("Read-only mounts let it pass, and there is no Landlock layer."),
        holds("It is a file that was not granted for writing."),
        tried("pipe-of-host"),
    ),
    GuaranteeRow(
        "read-only-mounts",
        "No mount of the host is left writable",
        holds("One call makes all of them read-only before the writable roots are put back."),
        _VIEW,
        holds("Mounts are as on the host; writing to them is refused by path."),
        tried("writable-mounts"),
    ),
    GuaranteeRow(
        "protected-existing",
        "Protected metadata and read-only paths in a writable root stay as they are",
        holds("Each is a read-only mount, which can be neither replaced nor renamed nor linked out of."),
        _VIEW,
        holds(
            "Rights are granted to the other entries of the root one by one, so nothing new can be made "
            "directly in such a root."
        ),
        tried(
            "git-write git-overwrite git-rename git-remove codex-write agents-write git-alias git-exchange "
            "git-replace locked-write locked-rename locked-hardlink locked-tmpfile"
        ),
    ),
    GuaranteeRow(
        "protected-missing",
        "Protected metadata that does not exist is not created",
        partly("It can be created; when the command has ended it is moved aside, and reported."),
        partly("As with namespaces: moved aside when the command has ended, and reported."),
        partly(
            "Refused in a root that holds another protected or denied path, because nothing new can be made "
            "there; otherwise moved aside when the command has ended."
        ),
    ),
    GuaranteeRow(
        "protected-parent",
        "A rule cannot be undone for the next command by renaming a directory above",
        holds("Such directories are pinned: they are mount points, which cannot be renamed."),
        holds("The same pins."),
        holds("Such directories get no right to be renamed."),
        tried("parent-renamed-to-write parent-renamed-to-read parent-exchanged parent-replaced-by-link"),
    ),
    GuaranteeRow(
        "denied",
        "A denied path is not read, whatever way leads to it",
        holds("An empty mask without permissions covers it. Other names that it had before stay readable."),
        _VIEW,
        partly("Its contents and entries are never granted; its size, times and permissions can be seen."),
        tried(
            "secret-read secret-link-read vault-list vault-read vault-read-root secret-hardlink "
            "secret-rename vault-rename secret-exchange secret-by-handle"
        ),
    ),
    GuaranteeRow(
        "replaced",
        "What is denied or protected stays so when a process outside replaces it or makes it later",
        partly(
            "A guard outside covers it again, after a gap of milliseconds; if it cannot, the command ends."
        ),
        no("Its namespaces cannot be entered to cover it again."),
        partly("What replaces it has no rights, which belong to what was there; what was missing is open."),
    ),
    GuaranteeRow(
        "denied-later",
        "A deny pattern holds for names that appear while the command runs",
        partly("What matched at the start is masked; a name that appears later is not."),
        partly("As with namespaces: what matched at the start."),
        partly("What matched at the start was not granted; a match inside a granted directory is."),
    ),
    GuaranteeRow(
        "new-entries",
        "Entries of a writable root can be made, renamed and removed as outside",
        holds("Also beside what is protected or denied."),
        _VIEW,
        partly("Not directly in a root or directory that holds something protected or denied."),
        tried("use-files use-many-files use-beside-protected"),
    ),
    GuaranteeRow(
        "shared-memory",
        "Shared memory of the host is out of reach",
        holds("Its own IPC namespace and its own /dev/shm."),
        _VIEW,
        partly("/dev/shm is the host's, and open to the same user; System V memory and queues are refused."),  # noqa: S108 - words
        tried("shared-memory-of-host sysv-memory-of-host"),
    ),
)

PROCESSES: Final = (
    GuaranteeRow(
        "processes-seen",
        "Processes outside are not seen",
        holds("Its own PID namespace with a fresh /proc. Where that cannot be mounted, the start says so."),
        _VIEW,
        no("No PID namespace: the host's processes and their command lines are in /proc."),
        tried("process-list proc-of-outside pidfd-of-outside limits-of-outside"),
    ),
    GuaranteeRow(
        "processes-touched",
        "Processes outside are neither signalled nor slowed down",
        holds("They have no number inside."),
        _VIEW,
        holds("Signals stay inside from Landlock ABI 6 on, before it nothing is started; seccomp the rest."),
        tried("kill-outside kill-group-outside kill-all kill-first priority-of-outside affinity-of-outside"),
    ),
    GuaranteeRow(
        "processes-read",
        "Memory, environment, directories and descriptors of processes outside are out of reach",
        holds("They are not in /proc, and the calls are refused."),
        _VIEW,
        partly(
            "Landlock refuses such access to processes outside of its domain, and seccomp refuses the calls; "
            "how many descriptors they have can be seen."
        ),
        tried(
            "environ-of-outside root-of-outside cwd-of-outside mem-of-outside fd-of-outside root-of-first "
            "cwd-of-first mem-of-first fd-of-first environ-of-first namespace-of-first ptrace "
            "process-vm-readv process-vm-writev pidfd-getfd"
        ),
    ),
    GuaranteeRow(
        "descriptors",
        "No descriptor of the server is inherited",
        holds("Close-on-exec everywhere, and close_range before the command."),
        holds("As with namespaces, and those that carry the set-up are closed by then."),
        holds("As with namespaces."),
        tried("descriptors descriptor-folders"),
    ),
    GuaranteeRow(
        "ends-together",
        "Everything that the command started ends with it",
        holds("The kernel ends a PID namespace with its first process."),
        holds("The kernel ends a PID namespace with its first process."),
        holds("A process around it adopts what leaves the session, and ends it."),
    ),
)

NETWORK: Final = (
    GuaranteeRow(
        "network-tcp",
        "Network off: no TCP connection, neither far away nor to the host",
        holds("Its own network namespace, in which only its own loopback exists."),
        _VIEW,
        holds("Every socket is refused."),
        tried("tcp-far tcp-host tcp-fast-open tcp-mapped tcp-any"),
    ),
    GuaranteeRow(
        "network-udp",
        "Network off: no datagram, neither far away nor to the host nor to everybody",
        holds("Its own network namespace, in which only its own loopback exists."),
        _VIEW,
        holds("Every socket is refused."),
        tried("udp-far udp-host multicast"),
    ),
    GuaranteeRow(
        "network-dns",
        "Network off: no name is looked up",
        holds("No name server can be reached, nor the sockets of local resolvers."),
        _VIEW,
        holds("Every socket is refused."),
        tried("dns dns-far"),
    ),
    GuaranteeRow(
        "network-names",
        "Hosts by name: allowed hosts are reached at allowed ports, by any program, and nothing else is",
        holds(
            "Its name server knows allowed hosts only and asks no other; a broker outside dials them. What "
            "TLS and plain HTTP name in the clear must be that host; what is inside of TLS is not seen."
        ),
        holds("As with namespaces: a child of ours enters bubblewrap's network, and makes the same there."),
        no("A policy that names hosts is refused: Landlock knows ports, and no addresses."),
    ),
    GuaranteeRow(
        "network-families",
        "Network off: no raw, packet, hypervisor, netlink or other special socket",
        holds("The seccomp filter allows IP, netlink for routing, and pairs of unix streams."),
        _FILTER,
        holds("Every socket is refused."),
        tried("raw raw6 packet vsock alg bluetooth xdp netlink-uevent netlink-audit netlink-netfilter"),
    ),
    GuaranteeRow(
        "network-interfaces",
        "Network off: interfaces of the host are neither seen nor changed",
        holds("They are in another namespace."),
        _VIEW,
        partly("They cannot be changed, but /proc and /sys show them."),
        tried("interfaces interface-down"),
    ),
    GuaranteeRow(
        "unix-abstract",
        "No abstract unix socket of the host, with the network on or off",
        holds(
            "With the network off abstract names belong to the network namespace. With it on a broker "
            "refuses them all, to bind as well, and Landlock (ABI 6) does too."
        ),
        holds("Unix sockets cannot be made, but for pairs of streams."),
        holds("Unix sockets cannot be made, but for pairs of streams."),
        tried("unix-abstract online-abstract"),
    ),
    GuaranteeRow(
        "unix-path",
        "No unix socket of the host by its path unless it is granted, with the network on or off",
        holds(
            "A broker carries out connect and bind: it reaches sockets that the command bound, and those of "
            "--allow-socket. Datagrams are refused. Where no broker came about the start says so, and unix "
            "sockets cannot be made, but for pairs of streams."
        ),
        holds("Unix sockets cannot be made, but for pairs of streams; none can be granted."),
        holds("Unix sockets cannot be made, but for pairs of streams; none can be granted."),
        tried(
            "unix-path unix-link unix-relative unix-datagram unix-pair-datagram unix-pair-raw "
            "unix-pair-stream online-path online-datagram online-link online-home"
        ),
    ),
    GuaranteeRow(
        "own-homes",
        "Holdfast's own directories, with the keys and sockets of its daemons, are out of reach",
        holds("Every policy that restricts files hides them, and their sockets are never granted."),
        _VIEW,
        holds("Nothing in them is granted; the directories above them cannot be listed."),
        tried(
            "home-listed home-key home-key-by-link home-key-linked home-written home-socket "
            "home-socket-by-path"
        ),
    ),
    GuaranteeRow(
        "unix-own",
        "Unix sockets made inside work: path sockets of streams and packets, whatever the network",
        holds("The broker knows them by their inode. Datagrams between unix sockets do not work."),
        no("There is no broker, so that they cannot be made; pairs of streams can."),
        no("There is no broker, so that they cannot be made; pairs of streams can."),
        tried("use-unix-server"),
    ),
    GuaranteeRow(
        "loopback",
        "Network off: servers inside can be reached from inside",
        holds("Loopback is up in its own namespace. Where that fails, the start says so."),
        _VIEW,
        no("Every socket is refused. Pairs of unix streams, and what needs no more, work."),
        tried("use-loopback use-loopback-udp use-localhost use-node"),
    ),
)

KERNEL: Final = (
    GuaranteeRow(
        "kernel-settings",
        "No setting of the kernel changes, not even for root",
        holds("/proc/sys and its like, and /sys, are read-only, and no capability is left."),
        _VIEW,
        holds("Nothing below /proc and /sys is granted for writing, and no capability is left."),
        tried(
            "sysctl-write core-pattern modprobe-path hostname-sysctl sysrq irq sysfs-file uevent-helper "
            "cgroup-move cgroup-made proc-files sys-files"
        ),
    ),
    GuaranteeRow(
        "devices",
        "Devices and terminals of the host are out of reach, and none can be made",
        holds("A /dev of its own with the harmless devices and its own terminals."),
        _VIEW,
        partly(
            "None can be made, only harmless ones and the command's own terminal opened, and so no new "
            "terminal either; but the host's /dev is seen."
        ),
        tried(
            "mknod-memory mknod-disk dev-mem dev-kmsg block-devices loop-control fuse kvm device-added "
            "terminal-of-host"
        ),
    ),
    GuaranteeRow(
        "typing",
        "Nothing can be typed or pasted into the terminal for another process to run",
        holds("The seccomp filter refuses TIOCSTI and TIOCLINUX."),
        _FILTER,
        _FILTER,
        tried("typing-for-others typing-for-others-disguised console-selection"),
    ),
    GuaranteeRow(
        "privileges",
        "No privilege is left and set-user-id programs give none",
        holds("No capabilities, an empty bounding set, and no_new_privs."),
        holds("No capabilities and no_new_privs."),
        holds("No capabilities and no_new_privs; as root an empty bounding set too."),
        tried(
            "none-left set-user-id-program set-user-id-made program-from-memory other-user other-group "
            "groups give-away file-capability id-map"
        ),
    ),
    GuaranteeRow(
        "mounts",
        "Mounts cannot be made, changed or removed",
        holds("No capabilities, and mounts of another user namespace are locked."),
        _VIEW,
        holds("No capabilities, and Landlock refuses mounting."),
        tried(
            "mount bind-mount remount remount-root propagation unmount-protection unmount-mask "
            "unmount-workspace pivot-root chroot open-tree move-mount fsopen fspick mount-setattr"
        ),
    ),
    GuaranteeRow(
        "namespaces",
        "No namespace can be made or entered",
        holds("The seccomp filter refuses new user namespaces; the others need capabilities."),
        _FILTER,
        _FILTER,
        tried(
            "unshare-user unshare-user-disguised unshare-mounts unshare-network unshare-processes clone-user "
            "clone-user-mounts clone-mounts clone3 setns-mounts setns-network setns-host-name setns-pidfd "
            "setns-user x32-unshare"
        ),
    ),
    GuaranteeRow(
        "calls",
        "System calls that could undo all this, or that few programs need, are refused",
        holds("The seccomp filter, also with the network on; numbers of other architectures are fatal."),
        _FILTER,
        _FILTER,
        tried(
            "io-uring-setup io-uring-enter io-uring-register bpf perf userfaultfd add-key request-key keyctl "
            "kexec kexec-file init-module finit-module delete-module reboot swapon set-host-name "
            "set-domain-name set-clock accounting quota x32 32-bit-call filter-removed lease lease-delegated "
            "lease-notice"
        ),
    ),
    GuaranteeRow(
        "second-layer",
        "A mistake in one layer for files is caught by another",
        holds("Landlock grants the same as the view. On a kernel without it the start says so."),
        no("The view is the only layer for files."),
        no("Landlock is the only layer for files."),
    ),
    GuaranteeRow(
        "resources",
        "Where limits are set, memory, processes, processors, open files, disk and time are bounded by them",
        _LIMITS,
        _LIMITS,
        _LIMITS,
        tried(
            "limit-memory limit-memory-of-child limit-processes limit-cpu limit-files limit-files-lifted "
            "limit-disk limit-time"
        ),
    ),
)

GUARANTEES: Final[tuple[GuaranteeRow, ...]] = (*FILES, *PROCESSES, *NETWORK, *KERNEL)
