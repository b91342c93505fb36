"""The program that a boot assertion runs inside a sandbox: it tries what it is asked and prints one line.

It is passed as text and imports nothing of ours. The asserting process also calls it outside, as the control.
"""

import contextlib
import errno
import json
import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, TypeAlias

Tried: TypeAlias = list[Any]  # whether it worked, the name of the errno or error, the message or answer

MARK = "".join(("holdfast-", "assert:"))  # in two parts: printing this source must not look like an answer
REACH_S = 5.0  # for one address; a slower one counts as out of reach for a start script
MAX_SAID = 300  # characters of an error or an answer
MAX_NAMES = 32  # of variables that look like secrets
_NAMELESS = getattr(os, "O_TMPFILE", 0)
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)  # no nameless files there
_SECRET = re.compile("KEY|SECRET|TOKEN|PASSWORD", re.IGNORECASE)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects: the answer counts, and its target is another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def write(path: str, name: str, content: str, *, dry: bool = False) -> Tried:
    """Put a file `name` into a directory, create a missing file, or open an existing one without a change.

    With `dry`, a directory gets a file without a name, which is invisible. Any other created file is left for
    the asserting process to find and remove.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        folder = os.path.isdir(path)
        if folder and dry:
            try:
                os.close(os.open(path, flags | _NAMELESS, 0o600))
            except OSError as exc:
                if exc.errno not in _NO_NAMELESS:
                    raise
                if not os.access(path, os.W_OK):
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES), path) from None
        elif os.path.lexists(path) and not folder:
            os.close(os.open(path, flags | os.O_APPEND))
        else:
            target = os.path.join(path, name) if folder else path
            file = os.open(target, flags | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(file, content.encode())
            finally:
                os.close(file)
    except OSError as exc:
        return [False, errno.errorcode.get(exc.errno or 0, "OSError"), str(exc)[:MAX_SAID]]
    return [True, "", ""]


def reach(url: str) -> Tried:
    """Connect to tcp://HOST:PORT and read its first bytes, or get an http(s) address; any answer counts."""
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "tcp":
            with socket.create_connection((parts.hostname or "", parts.port or 0), REACH_S) as link:
                link.settimeout(1.0)
                said = b""
                with contextlib.suppress(OSError):
                    said = link.recv(MAX_SAID)
                return [True, "", said.decode("utf-8", "replace")]
        try:
            with urllib.request.build_opener(_Stay).open(url, timeout=REACH_S) as answer:
                return [True, "", f"status {answer.status}"]
        except urllib.error.HTTPError as exc:
            with exc:
                said = exc.read(MAX_SAID)
            if exc.code == 403 and parts.scheme in urllib.request.getproxies():  # possibly by the proxy
                return [False, "HTTPError", f"status 403: {said.decode('utf-8', 'replace')}"]
            return [True, "", f"status {exc.code}"]
    except (OSError, ValueError) as exc:
        reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
        code = reason.errno if isinstance(reason, OSError) else None
        return [False, errno.errorcode.get(code or 0, type(reason).__name__), str(reason)[:MAX_SAID]]


def facts() -> dict[str, Any]:
    """Facts that distinguish a sandbox from the host, as evidence; of variables the names only."""
    found: dict[str, Any] = {"uid": os.getuid(), "netns": "", "uidMap": ""}
    with contextlib.suppress(OSError):
        found["netns"] = os.readlink("/proc/self/ns/net")
        with open("/proc/self/uid_map", encoding="ascii") as file:
            found["uidMap"] = " ".join(file.read(MAX_SAID).split())
    found["networkDisabled"] = "CODEX_SANDBOX_NETWORK_DISABLED" in os.environ
    found["secretNames"] = sorted(filter(_SECRET.search, os.environ))[:MAX_NAMES]
    return found


def main(text: str) -> None:
    """Answer questions given as a JSON object: nonce, name, seconds, writes and reaches."""
    asked = json.loads(text)
    signal.alarm(asked["seconds"])  # the process that asked may be gone
    answers = {
        "writes": [write(path, asked["name"], asked["nonce"], dry=dry) for path, dry in asked["writes"]],
        "reaches": [reach(url) for url in asked["reaches"]],
        "facts": facts(),
    }
    sys.stdout.write(f"\n{MARK}{asked['nonce'][::-1]} {json.dumps(answers)}\n")
