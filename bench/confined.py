"""The same work under a workspace-write policy without network, as the reference's own client asks for it."""

import base64
import os
from dataclasses import replace
from pathlib import Path

from bench.client import Failed
from bench.fixtures import LARGE_BYTES
from bench.measures import Contest, burst, calls, start_true


def workspace(contest: Contest) -> Path:
    """Not shared: the reference leaves names behind that change what a policy means to others."""
    path = contest.home / "workspace"
    path.mkdir(exist_ok=True)
    return path


def sandbox(contest: Contest) -> dict[str, object]:
    """Everything readable, a workspace of the server's own writable, network off."""
    root = workspace(contest).as_uri()
    special = [("root", "read"), ("project_roots", "write")]
    entries = [
        {"path": {"type": "special", "value": {"kind": kind}}, "access": access} for kind, access in special
    ]
    return {
        "permissions": {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": entries},
            "network": "restricted",
        },
        "cwd": root,
        "workspaceRoots": [root],
        "windowsSandboxLevel": "disabled",
    }


def confined_start(contest: Contest) -> list[float]:
    return start_true(replace(contest, sandbox=sandbox(contest)))


def confined_burst(contest: Contest) -> list[float]:
    return burst(replace(contest, sandbox=sandbox(contest)))


def confined_write(contest: Contest) -> list[float]:
    """4 KiB into a file of the workspace."""
    path = workspace(contest) / "written.bin"
    data = os.urandom(4096)
    params = {
        "path": path.as_uri(),
        "dataBase64": base64.b64encode(data).decode(),
        "sandbox": sandbox(contest),
    }

    def check(_reply: bytes) -> None:
        if path.read_bytes() != data:
            raise Failed("fs/writeFile wrote something else")

    return calls(contest, "fs/writeFile", params, contest.plan.starts, check)


def confined_read(contest: Contest) -> list[float]:
    """8 MiB under a policy that hides something, so that nobody may read directly."""
    path = contest.fixtures.large
    hidden = workspace(contest) / "hidden"
    hidden.mkdir(exist_ok=True)
    policy = sandbox(contest)
    permissions = policy["permissions"]
    assert isinstance(permissions, dict)
    deny = {"path": {"type": "path", "path": hidden.as_uri()}, "access": "deny"}
    permissions["file_system"]["entries"].append(deny)

    def check(reply: bytes) -> None:
        if len(reply) < LARGE_BYTES:
            raise Failed("fs/readFile returned too little")

    params = {"path": path.as_uri(), "sandbox": policy}
    return calls(contest, "fs/readFile", params, contest.plan.large_reads, check)
