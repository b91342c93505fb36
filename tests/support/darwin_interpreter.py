"""What an interpreter does first that is to be without Linux, see `without_linux`.

The tests themselves are not what is tried: what they look up below /proc, they see.
"""

import errno
import importlib
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

FACTS: dict[str, Any] = json.loads("the facts")
ABSENT = ("/proc", "/sys", "/dev/shm")
OF_LINUX = {  # calls that the C library of macOS does not have
    "prctl", "unshare", "setns", "pivot_root", "capget", "capset", "epoll_create1", "inotify_init1",
    "inotify_add_watch", "signalfd", "eventfd", "memfd_create", "pidfd_open", "pipe2", "umount2", "clone",
    "process_vm_readv", "prlimit", "setresuid", "setresgid", "close_range",
}  # fmt: skip
AF_UNIX = 1
MAX_SOCKET_PATH = 103  # and a zero


def is_other_machine() -> bool:
    """The server that a client is joined to runs on Linux."""
    return sys.orig_argv[1:4] == ["-m", "holdfast", "serve"]


def take_names() -> None:
    for module, (twin, names) in FACTS["names"].items():
        for place in (twin, module):
            loaded = importlib.import_module(place)
            for name in names:
                loaded.__dict__.pop(name, None)


def asked_by_a_test() -> bool:
    """Whether whoever called, but for the standard library, is a test."""
    library = os.path.dirname(os.__file__)
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not ((name.startswith((library, "<frozen")) and "site-packages" not in name) or name == __file__):
            return name.startswith(FACTS["tests"])
        frame = frame.f_back
    return False


def refuse_absent(path: object) -> None:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    absent = isinstance(path, str) and f"{path}/".startswith(tuple(f"{one}/" for one in ABSENT))
    if absent and not asked_by_a_test():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def hear(event: str, args: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir"):
        refuse_absent(args[0])
    elif event == "ctypes.dlsym" and args[1] in OF_LINUX:
        raise AttributeError(f"dlsym: symbol not found: {args[1]}")
    elif event in ("socket.bind", "socket.connect") and args[0].family == AF_UNIX:
        address = os.fsencode(args[1])
        if len(address) > MAX_SOCKET_PATH or address.startswith(b"\0"):
            raise OSError("AF_UNIX path too long, or abstract")


def look_first(name: str) -> None:
    """Calls on paths that tell nobody."""
    call = getattr(os, name)

    def looked(path: Any, *args: Any, **named: Any) -> Any:
        if not isinstance(path, int):
            refuse_absent(os.fspath(path))
        return call(path, *args, **named)

    for offers in (
        os.supports_dir_fd,
        os.supports_fd,
        os.supports_follow_symlinks,
        os.supports_effective_ids,
    ):
        if call in offers:
            offers.add(looked)
    setattr(os, name, looked)


def find_no_library(name: str, *_: object) -> str:
    raise ValueError(f"{name} could not be found")


def say_darwin() -> None:
    from sysconfig import _get_sysconfigdata_name  # type: ignore[attr-defined]

    os.environ.setdefault("_PYTHON_SYSCONFIGDATA_NAME", _get_sysconfigdata_name())
    sys.platform = "darwin"
    uname = ("Darwin", "mac", "24.6.0", "Darwin Kernel Version 24.6.0", "arm64")
    os.uname = lambda: os.uname_result(uname)
    proxies: Any = types.ModuleType("_scproxy")  # of macOS; urllib asks it
    proxies._get_proxy_settings = proxies._get_proxies = dict
    sys.modules["_scproxy"] = proxies
    libraries: Any = types.ModuleType("ctypes.macholib.dyld")  # some Linuxes leave it out
    libraries.dyld_find = find_no_library
    sys.modules["ctypes.macholib"] = types.ModuleType("ctypes.macholib")
    sys.modules["ctypes.macholib.dyld"] = libraries
    trust: Any = types.ModuleType("truststore._macos")  # asks Apple's Security framework about certificates
    trust._configure_context = trust._verify_peercerts_impl = None
    sys.modules["truststore._macos"] = trust


def become() -> None:
    take_names()
    say_darwin()
    paths: Callable[[str], None] = look_first
    for name in ("stat", "lstat", "readlink", "access"):
        paths(name)
    sys.addaudithook(hear)


if is_other_machine():
    sys.executable = FACTS["python"]
else:
    become()
