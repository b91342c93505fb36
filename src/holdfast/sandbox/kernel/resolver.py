"""The resolver files of the C library, as seen by a command that reaches hosts by name.

They are our own files, mounted over the host's. The host's name servers, its list of hosts and its name
services have no meaning in the command's network namespace. If the host lacks such a file and there is no
place for one, the C library's default has the same effect.

Standard library only, and little of it: this runs in a forked child of the launcher.
"""

import os

from holdfast.light import Callable, Final, Iterator
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import NO_DEV, NO_EXEC, NO_SUID, READ_ONLY

_SWITCH: Final = "/etc/nsswitch.conf"
FILES: Final = ("/etc/resolv.conf", "/etc/hosts", _SWITCH)
_STAGE: Final = "/dev"  # covered for a moment: a file in a detached tree cannot be copied
_MAX_SWITCH: Final = 64 * 1024
_RESOLVER: Final = "# by holdfast: hosts that are allowed have an address here, all others do not exist\n"
_HOSTS: Final = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"


def show(name_server: str, find: Callable[[str], int]) -> None:
    """Mount the files; `find` opens the place of a file, or raises FileNotFoundError if there is none.

    Raises:
        OSError: they cannot be mounted.
    """
    tree = kernel.new_filesystem("tmpfs", NO_SUID | NO_DEV | NO_EXEC, mode="0755")
    for name, content in write(name_server):
        fd = os.open(os.path.basename(name), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444, dir_fd=tree)
        os.write(fd, content)
        os.fchmod(fd, 0o444)
        os.close(fd)
    kernel.set_attributes(tree, READ_ONLY)
    stage = kernel.open_path(_STAGE)
    kernel.put_tree(tree, stage)
    copies = []
    for name in FILES:
        file = kernel.open_path(os.path.basename(name), tree)
        copies.append(kernel.copy_tree(file))
        os.close(file)
    kernel.uncover(_STAGE)
    for path, copy in zip(FILES, copies, strict=True):
        try:
            target = find(os.path.realpath(path))
        except FileNotFoundError:
            continue
        kernel.put_tree(copy, target)
        os.close(target)
    for fd in (tree, stage, *copies):
        os.close(fd)


def write(name_server: str) -> Iterator[tuple[str, bytes]]:
    """Each file with its contents."""
    contents = (
        f"{_RESOLVER}nameserver {name_server}\n",
        f"{_HOSTS}127.0.1.1 {os.uname().nodename}\n",
        _switch(_read(_SWITCH)),
    )
    for name, content in zip(FILES, contents, strict=True):
        yield name, content.encode("utf-8", "surrogateescape")


def shown() -> Iterator[str]:
    """The real paths of the files that exist."""
    return (real for path in FILES if os.path.exists(real := os.path.realpath(path)))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_MAX_SWITCH)
    except OSError:
        return ""


def _switch(text: str) -> str:
    """The host's choice of services, except for hosts: those are in our file and at our name server."""
    kept = [line for line in text.splitlines() if line.partition(":")[0].strip() != "hosts"]
    return "\n".join([*kept, "hosts: files dns", ""])
