"""What a difference between a host and a sandbox means to a command. Pure module."""

from collections.abc import Mapping
from typing import Final

# By group and field; an empty field is any other of that group.
CONSEQUENCES: Final[Mapping[tuple[str, str], str]] = {
    ("files", ""): "whatever needs that fails there; databases need create, lock and map",
    ("files", "read-only mounts"): "writing fails with 'Read-only file system'",
    ("files", "devices"): "programs that want one of them do not find it",
    ("files", "umask"): "new files have other permissions",
    ("network", "interfaces"): "no address outside is reached, and no name resolved",
    ("network", "families"): "such sockets cannot be made: clients and servers fail at once",
    ("network", "default route"): "no address outside is reached",
    ("network", "name servers"): "names are resolved otherwise",
    (
        "network",
        "loopback of the host",
    ): "servers on this machine, databases and proxies too, are out of reach",
    ("network", "abstract sockets of the host"): "services of the desktop and of the bus are out of reach",
    ("network", "own loopback"): "a server inside cannot be reached from inside: test suites fail",
    ("environment", ""): "a program that asks for it decides otherwise",
    ("environment", "PATH"): "other programs may be found",
    ("environment", "HOME"): "settings and credentials are looked for elsewhere",
    ("identity", "user"): "files belong to somebody else",
    ("identity", "groups"): "what is open to these groups is closed, a container socket for example",
    ("identity", "ssh agent"): "keys that the agent holds cannot be used: git over ssh fails",
    ("terminal", "new terminals"): "tmux, script and expect cannot open a terminal",
    ("terminal", "controlling terminal"): "passwords cannot be asked for",
    ("process", "ignored signals"): "a writer without a reader fails otherwise, if SIGPIPE is among them",
    ("process", "blocked signals"): "such a signal has no effect",
    ("process", "open descriptors"): "a file or socket of somebody else is inherited, or one is missed",
    ("process", "limit on open files"): "builds and test runners may run out of descriptors",
    ("process", "working directory"): "relative paths lead elsewhere",
    ("confinement", "user namespace"): "owners that have no number inside show as nobody",
    ("confinement", "mnt namespace"): "what is mounted later is seen on one side only",
    ("confinement", "pid namespace"): "process numbers are others: lock files that hold one look stale",
    ("confinement", "net namespace"): "a port opened inside is not the host's",
    ("confinement", "ipc namespace"): "System V memory and queues are not the host's",
    ("confinement", "capabilities"): "root may do less",
    ("confinement", "no new privileges"): "sudo and other set-user-id programs gain nothing",
    ("confinement", "seccomp"): "some system calls are refused: debuggers and nested sandboxes fail",
    ("confinement", "sees the processes outside"): "ps, kill and debuggers do not reach them",
}

# For an agent CLI, where its own record knows better than the group.
RELOCATED: Final = "its state is the worker's own: logins, settings and history in the home are not used"
OTHER_PROVIDER: Final = "it talks to another provider than it would without us"
PROVIDER_OUT_OF_REACH: Final = "its provider may be out of reach"
