"""A PostgreSQL server of our own: an unprivileged user, a temporary directory, a unix socket and no port."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg

from tests.support.patience import patient

WAIT_S: Final = patient(60.0)  # to start or to stop, on a loaded machine
_SETTINGS: Final = ("listen_addresses=", "fsync=off", "full_page_writes=off", "max_connections=50", "jit=off")


def programs() -> Path | None:
    """Where the server's programs are, if they are installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


@contextlib.contextmanager
def server(binaries: Path) -> Iterator[str]:
    """A running server; the address of its database, to which options can be added."""
    with tempfile.TemporaryDirectory(prefix="hf-pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        home, user = Path(name), _unprivileged()
        if user is not None:
            os.chown(home, user.pw_uid, user.pw_gid)
        ids = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": name, "LC_ALL": "C"}
        data = home / "data"
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"],
            check=True,
            capture_output=True,
            timeout=WAIT_S,
            cwd=name,
            env=environment,
            **ids,  # type: ignore[call-overload]  # which of them there are is known only here
        )
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                # It ends with us, also if we are killed.
                ["setpriv", "--pdeathsig", "INT", binaries / "postgres", "-D", data, "-k", name, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=name,
                env=environment,
                start_new_session=True,
                **ids,  # type: ignore[call-overload]  # as above
            )
        address = f"postgresql:///postgres?host={name}&user=postgres"
        try:
            _wait_until_it_answers(address, process, home / "log")
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait(WAIT_S)


def fresh(address: str) -> str:
    """The address of an empty schema in that server."""
    schema = f"s{uuid.uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{address}&options=-csearch_path%3D{schema}"


def _unprivileged() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; it wants a user that has a name."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _wait_until_it_answers(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no server: {log.read_text('utf-8', 'replace')}") from None
        time.sleep(0.05)
