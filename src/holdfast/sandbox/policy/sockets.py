"""Unix sockets of the host: which give access to more than a service, and how one is granted. Pure module.

A grant names one socket. The process that answers there runs outside the sandbox: some such processes do
whatever they are asked.
"""

import re
from collections.abc import Iterable
from typing import Final

from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import quote, within

RULE: Final = "a unix socket of the host is reached only if it is granted, with the network on or off"
AGENT_GRANT: Final = '--allow-socket "$SSH_AUTH_SOCK"'

# Pattern of a socket's path, and what a process that reaches it can do.
_RISKS: Final = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (r"/(?:docker|podman|dockershim|buildkitd?|crio|cri-dockerd)[\w.-]*\.sock$", "run anything as root"),
        (r"/(?:containerd|k3s)/.*\.sock(?:\.ttrpc)?$|/containerd\.sock$", "run anything as root"),
        (r"/(?:lxd|incus)/.*unix\.socket$|/libvirt(?:-sock|/libvirt-sock)", "run anything as root"),
        (r"/systemd/(?:private|notify)$|/systemd/.*\.(?:private|varlink)", "start services outside"),
        (
            r"/dbus/system_bus_socket$|/(?:at-spi/)?bus(?:_\d+)?$|/dbus-[\w]+$",
            "start programs outside by D-Bus",
        ),
        (r"/tmux-\d+/", "type into the terminals of that tmux server"),
        (r"/(?:S-|uscreens/|screens?/)", "type into the terminals of that screen session"),
        (r"/S\.gpg-agent[\w.]*$", "sign and decrypt with your keys"),
        (r"/\.X11-unix/X\d+$", "read the keyboard and type into windows"),
        (r"/wayland-\d+$", "read and drive the desktop"),
        (r"/(?:vscode-ipc|vscode-git)-[\w-]+\.sock$", "run commands in the editor"),
    )
)
# Sockets of Holdfast's daemons, in any home: they start whatever they are asked for.
_OURS: Final = re.compile(r"/(?:holdfast|\.holdfast)/.*|.*/(?:supervisor|exec|board)\.sock$")
# Sockets of one run, which accept only its token and its verbs. A worker that cannot reach the board has its
# outbox.
_OF_A_RUN: Final = re.compile(r"/runs/[\w-]{1,64}/(?:board|exec)\.sock$")
_AGENT: Final = re.compile(r"/(?:ssh-[\w]+/agent\.\d+|(?:ssh-)?agent\.\w+|keyring/ssh|S\.gpg-agent\.ssh)$")


def find_risk(path: str) -> str | None:
    """What a process that reaches this socket can do outside; None if no risk is known."""
    return next((what for pattern, what in _RISKS if pattern.search(path)), None)


def check_granted(paths: Iterable[str], *, home: str, most: int) -> None:
    """Check the sockets to grant. `home` is the directory of our daemons.

    Raises:
        UsageError: one of these is never granted, or there are too many.
    """
    known = list(paths)
    if len(known) > most:
        raise UsageError(f"more than {most} unix sockets")
    for path in known:
        if not is_of_run(path) and (within(path, home) or _OURS.search(path)):
            raise UsageError(
                f"{path} is not granted: it is a socket of Holdfast's own, which starts what it is asked for",
            )


def is_of_run(path: str) -> bool:
    """Whether it is a socket on which the dispatcher, or the executor of its commands, serves one run."""
    return _OF_A_RUN.search(path) is not None


def grant_for(path: str) -> str | None:
    """The flag that would allow a connection to it; None if no user should be advised to give it."""
    if path.startswith("@") or find_risk(path) is not None or _OURS.search(path):
        return None
    return AGENT_GRANT if _AGENT.search(path) else f"--allow-socket {quote(path)}"
