"""What this executor reports about itself to clients."""

import hashlib
import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.server.files import watch
from holdfast.wire.environment import Capabilities, EnvironmentInfo, ShellInfo
from holdfast.wire.paths import uri_of

# The client compares this with the reference's releases before it uses newer methods. The release whose
# protocol we implement comes first; our own version is build metadata.
EXECUTOR_VERSION: Final = f"0.166.0+holdfast.{__version__}"
_KNOWN_SHELLS: Final = ("zsh", "bash", "sh")
_FALLBACK_SHELLS: Final = ("zsh", "bash") if sys.platform == "darwin" else ("bash", "zsh")


def detect_shell(login_shell: str | None, path: str | None) -> ShellInfo:
    """The login shell if it is a known one, otherwise bash, otherwise sh."""
    wanted = [Path(login_shell).name] if login_shell else []
    for name in [n for n in wanted if n in _KNOWN_SHELLS] + list(_FALLBACK_SHELLS):
        if login_shell and Path(login_shell).name == name and os.access(login_shell, os.X_OK):
            return ShellInfo(name, login_shell)
        found = shutil.which(name, path=path)
        if found:
            return ShellInfo(name, found)
    return ShellInfo("sh", "/bin/sh")


def login_shell() -> str | None:
    """The login shell from the user database; None for a user who is not in it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or None
    except KeyError:
        return None


def home_directory(environ: Mapping[str, str]) -> str | None:
    home = environ.get("HOME")
    if home:
        return home
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def _provider_id() -> str:
    """A stable, opaque id: it shows a client whether two servers have the same machine and user."""
    try:
        machine = Path("/etc/machine-id").read_bytes()
    except OSError:
        machine = os.uname().nodename.encode()
    return "sha256:" + hashlib.sha256(machine.strip() + b":holdfast:%d" % os.getuid()).hexdigest()


def _working_directory() -> str | None:
    """The working directory; None if it was removed, since the server needs none and clients name theirs."""
    try:
        return os.getcwd()
    except OSError:
        return None


def environment_info(environ: Mapping[str, str], *, proxied: bool = False) -> EnvironmentInfo:
    """The answer to `environment/info`; a capability is announced only if it works here.

    `proxied`: a command can have its own proxy.
    """
    proxied = proxied and sys.platform == "linux"
    masks = proxied and find_spec("cryptography") is not None
    cwd = _working_directory()
    temp = environ.get("TMPDIR", "")
    home = home_directory(environ)
    return EnvironmentInfo(
        shell=detect_shell(login_shell(), environ.get("PATH")),
        cwd=uri_of(cwd) if cwd else None,
        temporary_directories=[uri_of(os.path.normpath(os.path.join(cwd or "/", temp)))] if temp else [],
        temp_dir=uri_of(os.path.normpath(os.path.join(cwd or "/", temp or "/tmp"))),  # noqa: S108 - the platform's
        capabilities=Capabilities(
            capability_discovery_sandbox=True,
            capability_discovery_v2=True,
            credential_masking=masks,
            credential_masking_custom_providers=masks,
            environment_config_read=True,
            file_write_streaming=True,
            fs_watch_missing=watch.is_supported(),
            http_header_env_vars=True,
            linux_approved_root_write_preserves_restrictions=True,
            linux_root_write_preserves_devices=True,
            network_proxy_launch=proxied,
            network_proxy_review_domains=proxied,
            sandboxed_file_streaming=True,
            shell_snapshot_v2=True,
            holdfast_ask_hosts=proxied,
            holdfast_close_stdin=True,
            holdfast_commands=True,
            holdfast_limits=True,
            holdfast_resize=True,
            holdfast_secrets=proxied and find_spec("cryptography") is not None,
            holdfast_signals=True,
            holdfast_usage=True,
            holdfast_watch=True,
        ),
        executor_version=EXECUTOR_VERSION,
        provider_id=_provider_id(),
        user_home_dir=uri_of(home) if home else None,
        platform_os="macos" if sys.platform == "darwin" else "linux",
        prepend_path_dirs=[],
    )
