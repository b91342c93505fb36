"""Fingerprints of a sandbox that could not be built: by error text, and by stage and errno. Pure module.

Rows are ordered by specificity: the first row that fits a line owns it. Patterns are matched
case-insensitively and never start with a repetition, so that a hostile text costs only linear time.
"""

import enum
import errno
from typing import Final, NamedTuple


class Layer(enum.StrEnum):
    """The layer that refused."""

    HOST_KERNEL = "host-kernel"
    CONTAINER = "container"
    APPARMOR = "apparmor"
    SANDBOX_SETUP = "sandbox-setup"
    FILESYSTEM = "filesystem"
    NETWORK = "network"
    SYSCALL = "syscall"
    TOOL = "tool"
    CONFIG = "config"
    POLICY = "policy"
    TRUST = "trust"
    VCS = "vcs"
    APP = "app"
    PROVIDER = "provider"
    WINDOWS = "windows"
    OBSERVABILITY = "observability"


class FingerprintRow(NamedTuple):
    id: str
    layer: Layer
    confidence: float  # probability that this is the cause, given the text alone
    cause: str
    remedy: str
    patterns: tuple[str, ...] = ()
    errnos: tuple[str, ...] = ()  # names in WORDINGS that match too, at the places where messages have them
    path: str | None = None  # the refused path, when the text cannot name it
    beside: tuple[str, ...] = ()  # patterns that the whole text must contain too
    unless: tuple[str, ...] = ()  # patterns that rule this row out, anywhere in the text


SETUP_ROWS: Final = (
    FingerprintRow(
        "apparmor.userns", Layer.APPARMOR, 0.95,
        "AppArmor moves every unprivileged user namespace into a profile without capabilities",
        "set kernel.apparmor_restrict_unprivileged_userns=0, add an AppArmor profile with `userns,` for the"
        " launcher, or use a bwrap that has one",
        (
            r'apparmor="(?:DENIED|AUDIT)"[^\n]{0,400}(?:operation="userns_create"|unprivileged_userns)',
            r"User namespace creation restricted",
        ),
    ),
    FingerprintRow(
        "userns.enospc", Layer.HOST_KERNEL, 0.95,
        "the kernel's limit on namespaces is reached or set to 0",
        "sudo sysctl user.max_user_namespaces=63000 (also max_mnt_, max_pid_ and max_net_namespaces)",
        (
            r"Creating new namespace failed: nesting depth or \S{1,64} exceeded",
            r"unshare: unshare failed: No space left on device",
        ),
    ),
    FingerprintRow(
        "userns.eperm", Layer.CONTAINER, 0.9,
        "creating a user namespace is forbidden: a container's seccomp filter, an outer sandbox, or"
        " the sysctl kernel.unprivileged_userns_clone=0",
        "allow user namespaces in the container's seccomp profile, or set kernel.unprivileged_userns_clone=1",
        (
            r"No permissions to create (?:a )?new namespace",
            r"unshare: unshare failed: Operation not permitted",
            r"Failed to move to new namespace: [^\n]{1,160}Operation not permitted",
        ),
    ),
    FingerprintRow(
        "userns.einval", Layer.HOST_KERNEL, 0.9,
        "the kernel was built without user namespaces",
        "use a kernel with CONFIG_USER_NS, or the landlock backend",
        (
            r"Creating new namespace failed, likely because the kernel does not support user namespaces",
            r"unshare: unshare failed: Invalid argument",
        ),
    ),
    FingerprintRow(
        "userns.eacces", Layer.APPARMOR, 0.8,
        "AppArmor forbids this program to create user namespaces and has no profile to move it to",
        "add an AppArmor profile with `userns,`, or set kernel.apparmor_restrict_unprivileged_userns=0",
        (
            r"Creating new namespace failed: Permission denied",
            r"unshare: unshare failed: Permission denied",
        ),
    ),
    FingerprintRow(
        "userns.other", Layer.CONTAINER, 0.7,
        "the kernel or a filter around this process refuses new namespaces",
        "run outside the outer sandbox or container, or let its filter pass clone and unshare",
        (r"Creating new namespace failed: ", r"unshare: unshare failed: "),
    ),
    FingerprintRow(
        "uidmap.eperm", Layer.CONTAINER, 0.9,
        "root without CAP_SETFCAP may not map user id 0 (since Linux 5.12), or a sandbox is around this",
        "do not nest sandboxes; give the container CAP_SETFCAP, or run as an ordinary user (`unshare -Ur`"
        " maps root: try `unshare -U true` as well)",
        (
            r"setting up [ug]id map: Operation not permitted",
            r"write failed /proc/\S{1,32}/[ug]id_map: Operation not permitted",
            r"write to [ug]id_map failed: Operation not permitted",
        ),
    ),
    FingerprintRow(
        "uidmap.eacces", Layer.APPARMOR, 0.8,
        "AppArmor's unprivileged_userns profile, an outer Landlock sandbox or a non-dumpable process forbids"
        " writing the user id map",
        "add an AppArmor profile with `userns,` or set kernel.apparmor_restrict_unprivileged_userns=0; do not"
        " nest inside a Landlock sandbox",
        (
            r"setting up [ug]id map: Permission denied",
            r"cannot open /proc/\S{1,32}/[ug]id_map: Permission denied",
        ),
    ),
    FingerprintRow(
        "uidmap.erofs", Layer.CONTAINER, 0.95,
        "/proc is mounted read-only",
        "mount /proc writable in the container",
        (
            r"setting up [ug]id map: Read-only file system",
            r"cannot open /proc/\S{1,32}/[ug]id_map: Read-only file system",
        ),
    ),
    FingerprintRow(
        "proc.absent", Layer.CONTAINER, 0.9,
        "/proc or /proc/sys is masked or missing",
        "mount a complete /proc in the container",
        (r"Can't read /proc/sys/kernel/overflow[ug]id: ",),
    ),
    FingerprintRow(
        "proc.masked", Layer.CONTAINER, 0.9,
        "parts of /proc are covered, so the kernel refuses a fresh one",
        "run the container with an unmasked /proc (systempaths=unconfined)",
        (r"Can't mount proc on \S{1,200}: ", r"unshare: mount /proc failed: "),
    ),
    FingerprintRow(
        "lo.newaddr", Layer.APPARMOR, 0.8,
        "the loopback interface cannot be set up: AppArmor took CAP_NET_ADMIN in the namespace, or netlink is"
        " filtered",
        "add an AppArmor profile with `userns,` or set kernel.apparmor_restrict_unprivileged_userns=0",
        (r"loopback: Failed RTM_NEW(?:ADDR|LINK)",),
    ),
    FingerprintRow(
        "lo.socket", Layer.CONTAINER, 0.9,
        "a filter around this process refuses netlink sockets",
        "let the outer seccomp filter pass socket(AF_NETLINK)",
        (r"loopback: Failed to create NETLINK_ROUTE socket",),
    ),
    FingerprintRow(
        "lo.bind", Layer.CONTAINER, 0.9,
        "a filter around this process refuses bind on a netlink socket, or looking up the interface",
        "let the outer seccomp filter pass bind and ioctl",
        (r"loopback: Failed to bind NETLINK_ROUTE", r"loopback: Failed to look up lo\b"),
    ),
    FingerprintRow(
        "netns.refused", Layer.CONTAINER, 0.9,
        "the kernel or a filter refuses a new network namespace",
        "let the container create network namespaces, or use the landlock backend",
    ),
    FingerprintRow(
        "mount.rootfs", Layer.HOST_KERNEL, 0.85,
        "the root of this system is its initial RAM disk or a chroot, which cannot be exchanged",
        "boot with a root file system of its own (`findmnt /`), or use the landlock backend",
        (r"bwrap: pivot_root: Invalid argument",),
    ),
    FingerprintRow(
        "mount.eperm", Layer.CONTAINER, 0.85,
        "mounting is forbidden: a container's seccomp filter, AppArmor, or an outer Landlock sandbox",
        "allow mount, open_tree and mount_setattr in the container, or use the landlock backend",
        (
            r"Failed to make / (?:slave|private): ",
            r"bwrap: pivot_root: ",
            r"cannot change root filesystem propagation: ",
        ),
    ),
    FingerprintRow(
        "mount.enosys", Layer.HOST_KERNEL, 0.9,
        "the kernel lacks the mount calls of Linux 5.12, or a filter hides them",
        "use a newer kernel, or the bwrap backend",
    ),
    FingerprintRow(
        "mount.source", Layer.SANDBOX_SETUP, 0.8,
        "a path of the policy disappeared or changed its kind before it could be mounted",
        "check the paths of the policy and try again",
    ),
    FingerprintRow(
        "mount.other", Layer.SANDBOX_SETUP, 0.6,
        "the view of the file system could not be built",
        "run `holdfast doctor` and see which mount fails",
        (r"bwrap: Can't (?:bind mount|mount|remount|make symlink|create)\b",),
    ),
    FingerprintRow(
        "nnp.eperm", Layer.CONTAINER, 0.9,
        "a filter around this process refuses prctl(PR_SET_NO_NEW_PRIVS)",
        "let the outer seccomp filter pass prctl",
        (r"prctl\(PR_SET_NO_NEW_PRIVS\) failed",),
    ),
    FingerprintRow(
        "seccomp.refused", Layer.CONTAINER, 0.9,
        "a seccomp filter cannot be installed: the kernel lacks it, or an outer filter refuses it",
        "use a kernel with CONFIG_SECCOMP_FILTER and let the outer filter pass seccomp and prctl",
        (r"Sandbox\(SeccompInstall\(",),
    ),
    FingerprintRow(
        "landlock.absent", Layer.HOST_KERNEL, 0.95,
        "the kernel has no Landlock (before 5.13, or built without it)",
        "use a kernel with CONFIG_SECURITY_LANDLOCK, or a backend with namespaces",
        (r"landlock_create_ruleset\b[^\n]{0,80}(?:Errno 38|os error 38|Function not implemented)",),
    ),
    FingerprintRow(
        "landlock.disabled", Layer.HOST_KERNEL, 0.95,
        "Landlock is built in but switched off at boot",
        "add landlock to the lsm= boot parameter",
        (r"landlock_create_ruleset\b[^\n]{0,80}(?:Errno 95|os error 95|Operation not supported)",),
    ),
    FingerprintRow(
        "landlock.layers", Layer.SANDBOX_SETUP, 0.9,
        "sixteen Landlock sandboxes are nested already",
        "nest fewer sandboxes",
    ),
    FingerprintRow(
        "landlock.grants", Layer.SANDBOX_SETUP, 0.9,
        "a directory that holds something protected or hidden has too many entries to grant one by one",
        "put what is protected or hidden into a directory of its own, or use a backend with namespaces",
    ),
    FingerprintRow(
        "landlock.refused", Layer.CONTAINER, 0.8,
        "a filter around this process refuses Landlock",
        "let the outer seccomp filter pass the landlock system calls",
        (r"landlock_(?:create_ruleset|add_rule|restrict_self)\b[^\n]{0,80}(?:Errno|os error|not permitted)",),
    ),
    FingerprintRow(
        "caps.unexpected", Layer.CONTAINER, 0.9,
        "an ordinary user holds ambient capabilities, which bwrap refuses",
        "drop the ambient capabilities, or run as root",
        (r"Unexpected capabilities but not setuid",),
    ),
    FingerprintRow(
        "caps.refused", Layer.CONTAINER, 0.8,
        "capabilities cannot be dropped: a filter around this process refuses prctl or capset",
        "let the outer seccomp filter pass prctl and capset",
    ),
    FingerprintRow(
        "chdir.failed", Layer.SANDBOX_SETUP, 0.9,
        "the working directory is missing, or cannot be entered under this policy",
        "start in a directory that exists and that the policy makes readable",
        (r"bwrap: Can't chdir to (?P<path>[^\n]{1,400}?): ",),
    ),
    FingerprintRow(
        "exec.missing", Layer.TOOL, 0.9,
        "the program, or the interpreter it names, is not there in the sandbox",
        "check the name and PATH; if it is outside the readable paths, add --allow-read",
    ),
    FingerprintRow(
        "exec.denied", Layer.TOOL, 0.8,
        "the program may not be executed: no execute bit, or on a path the policy denies",
        "make it executable, or add --allow-read for it",
    ),
    FingerprintRow(
        "exec.failed", Layer.TOOL, 0.6,
        "the kernel could not start the program",
        "check that it is a program for this machine and that its arguments are not too long",
    ),
    FingerprintRow(
        "bwrap.option", Layer.TOOL, 0.95,
        "this bwrap is too old for an option",
        "install bubblewrap 0.8 or newer",
        (r"bwrap: Unknown option ",),
    ),
    FingerprintRow(
        "bwrap.missing", Layer.TOOL, 0.95,
        "bubblewrap is not installed",
        "sudo apt-get install bubblewrap, or use a host that lets Holdfast create namespaces itself; Codex"
        " has its own only where its whole package is installed: npm install -g @openai/codex",
        (
            r"\bbwrap: (?:command )?not found",
            r"No such file or directory: '(?:/[^'\n]{0,200}/)?bwrap'",
            r"bubblewrap is unavailable: no system bwrap was found",
        ),
    ),
    FingerprintRow(
        "bwrap.setuid", Layer.TOOL, 0.95,
        "this bwrap is set-user-id: its namespaces are root's, so what it built cannot be checked",
        "install bubblewrap without the set-user-id bit, on a kernel that allows user namespaces",
    ),
    FingerprintRow(
        "bwrap.arguments", Layer.TOOL, 0.95,
        "the policy, the environment and the command together are more arguments than bwrap takes",
        "deny fewer paths or use a backend with namespaces",
        (r"bwrap: Exceeded maximum number of arguments",),
    ),
    FingerprintRow(
        "bwrap.view", Layer.SANDBOX_SETUP, 0.8,
        "the view that bwrap built is not the planned one: a path was replaced meanwhile",
        "let no process rename the paths of the policy, and try again",
    ),
    FingerprintRow(
        "bwrap.arg0", Layer.TOOL, 0.95,
        "giving a command another name than its program's needs bash in the sandbox, with this backend",
        "leave arg0 out, make /bin/bash readable, or use a backend with namespaces",
    ),
    FingerprintRow(
        "bwrap.shell", Layer.TOOL, 0.95,
        "the policy shows no /bin/sh, which this backend starts every command with",
        "make /bin, /lib and /usr readable, or use a backend with namespaces",
        (r"bwrap: execvp /bin/sh: ",),
    ),
    FingerprintRow(
        "bwrap.mkdir", Layer.SANDBOX_SETUP, 0.95,
        "bwrap must create a mount point in a directory that this user cannot write",
        "make the writable root belong to this user, or leave it out of the policy",
        (r"bwrap: Can't mkdir (?P<path>[^\n]{1,400}?): ",),
    ),
    FingerprintRow(
        "bwrap.source", Layer.SANDBOX_SETUP, 0.95,
        "the policy names a path that does not exist",
        "create the path, or remove it from the policy",
        (r"bwrap: Can't find source path (?P<path>[^\n]{1,400}?): ",),
    ),
    FingerprintRow(
        "bwrap.exec", Layer.TOOL, 0.9,
        "the program is not there in the sandbox",
        "check the name and PATH; if it is outside the readable paths, add --allow-read",
        (r"bwrap: execvp (?P<path>[^\n]{1,400}?): ",),
    ),
    FingerprintRow(
        "bwrap.other", Layer.TOOL, 0.5,
        "bwrap could not build the view and said nothing that is known",
        "run bwrap by hand and see what it says, or use a backend with namespaces",
    ),
)  # fmt: skip

_NAMESPACE: Final[dict[int | None, str]] = {
    errno.ENOSPC: "userns.enospc",
    errno.EUSERS: "userns.enospc",
    errno.EPERM: "userns.eperm",
    errno.EINVAL: "userns.einval",
    errno.EACCES: "userns.eacces",
    None: "userns.other",
}
_MOUNT: Final[dict[int | None, str]] = {
    errno.EPERM: "mount.eperm",
    errno.EACCES: "mount.eperm",
    errno.ENOSYS: "mount.enosys",
    errno.ENOENT: "mount.source",
    errno.ENOTDIR: "mount.source",
    errno.ELOOP: "mount.source",
    None: "mount.other",
}
_MOUNT_STAGES: Final = (
    *("mount", "propagation", "root", "readonly", "dev", "link", "seal"),
    *("readable", "writable", "read-only", "mask-directory", "mask-file", "pin"),  # kinds of a plan's steps
)
_CHDIR: Final[dict[int | None, str]] = {None: "chdir.failed"}

# By the launcher's name of the stage. None stands for every other errno.
BY_ERRNO: Final[dict[str, dict[int | None, str]]] = {
    "userns": _NAMESPACE,
    "mountns": _NAMESPACE,
    "pidns": _NAMESPACE,
    "uidmap": {
        errno.EPERM: "uidmap.eperm",
        errno.EACCES: "uidmap.eacces",
        errno.EROFS: "uidmap.erofs",
        errno.ENOENT: "proc.absent",
        None: "uidmap.eperm",
    },
    **dict.fromkeys(_MOUNT_STAGES, _MOUNT),
    "proc": {errno.ENOENT: "proc.absent", None: "proc.masked"},
    "netns": {errno.ENOSPC: "userns.enospc", None: "netns.refused"},
    "loopback": {None: "lo.newaddr"},
    "nnp": {None: "nnp.eperm"},
    "seccomp": {None: "seccomp.refused"},
    "landlock": {
        errno.ENOSYS: "landlock.absent",
        errno.EOPNOTSUPP: "landlock.disabled",
        errno.E2BIG: "landlock.layers",
        None: "landlock.refused",
    },
    "grants": {None: "landlock.grants"},
    "capabilities": {None: "caps.refused"},
    "chdir": _CHDIR,
    "cwd": _CHDIR,
    "exec": {errno.ENOENT: "exec.missing", errno.EACCES: "exec.denied", None: "exec.failed"},
}
