"""The same messages to the Codex CLI's server and to ours: codes and results agree, texts may differ.

Each case runs against both servers in the same freshly made directory. Where we differ on purpose,
`DIFFERENCES` says why and what each of the two answers there; the test insists on exactly that.
"""

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop import file_cases, network_cases, process_cases, wire_cases
from tests.support.codex import requires_codex
from tests.support.dialogue import answers_of
from tests.support.patience import patient
from tests.support.root_only import root_only
from tests.support.servers import ServerProcess, codex_server, holdfast_server, isolated_environment

CASES: Final = wire_cases.CASES | process_cases.CASES | file_cases.CASES | network_cases.CASES
REFUSED: Final = {"code": -32602, "message": "..."}


@dataclass(frozen=True, slots=True)
class Difference:
    """Why one answer of a case differs, which one, and what exactly each server says there."""

    why: str
    at: int
    theirs: object
    ours: object


# What both announce, what only the reference does, and what only we do.
BOTH_CAN: Final = {
    "capabilityDiscoverySandbox": True,
    "capabilityDiscoveryV2": True,
    "environmentConfigRead": True,
    "fileWriteStreaming": True,
    "fsWatchMissing": True,
    "httpHeaderEnvVars": True,
    "linuxApprovedRootWritePreservesRestrictions": True,
    "linuxRootWritePreservesDevices": True,
    "networkProxyLaunch": True,
    "networkProxyReviewDomains": True,
    "sandboxedFileStreaming": True,
    "shellSnapshotV2": True,
}
THEY_CAN = {"windowsMxc": False}
# The reference masks credentials in bash and zsh; a login shell that is neither and that it knows is `sh`.
if Path(pwd.getpwuid(os.geteuid()).pw_shell).name != "sh":
    THEY_CAN |= {"credentialMasking": True, "credentialMaskingCustomProviders": True}
WE_CAN: Final = {
    "credentialMasking": True,  # in every shell
    "credentialMaskingCustomProviders": True,
    "holdfastAskHosts": True,
    "holdfastCloseStdin": True,
    "holdfastCommands": True,
    "holdfastLimits": True,
    "holdfastResize": True,
    "holdfastSecrets": True,
    "holdfastSignals": True,
    "holdfastUsage": True,
    "holdfastWatch": True,
}
INFORMATION: Final = {
    "shell": {"name": "str", "path": "str"},
    "executorVersion": "str",
    "providerId": "str",
    "cwd": "str",
    "userHomeDir": "str",
    "platformOs": "str",
    "temporaryDirectories": [],
    "tempDir": "str",
}
DIFFERENCES: dict[str, Difference] = {
    "envelope-positional-params": Difference(
        "parameters by position are an accident of their decoder",
        at=1,
        theirs={"id": 1, "result": {"running": False}},
        ours={"id": 1, "error": REFUSED},
    ),
    "handshake-information": Difference(
        "we announce the capabilities we have, and some that only we have",
        at=1,
        theirs={
            "id": "int",
            "result": {**INFORMATION, "capabilities": BOTH_CAN | THEY_CAN, "prependPathDirs": ["str"]},
        },
        ours={
            "id": "int",
            "result": {**INFORMATION, "capabilities": BOTH_CAN | WE_CAN, "prependPathDirs": []},
        },
    ),
    "stdin-base64": Difference(
        "bits of the last letter that encode nothing are ignored, not refused",
        at=5,
        theirs={"id": 6, "error": REFUSED},
        ours={"id": 6, "result": {"status": "accepted"}},
    ),
    "terminal-killed": Difference(
        "the end by a signal is 128 + n on a terminal too; they say 1",
        at=2,
        theirs=[
            {"processId": "p", "seq": "process/exited", "exitCode": 1, "sandboxDenied": False},
            {"processId": "p", "seq": "process/closed"},
        ],
        ours=[
            {"processId": "p", "seq": "process/exited", "exitCode": 143, "sandboxDenied": False},
            {"processId": "p", "seq": "process/closed"},
        ],
    ),
    "signal-kill": Difference(
        "we deliver more signals than the interrupt",
        at=1,
        theirs={"id": 2, "error": REFUSED},
        ours={"id": 2, "result": {}},
    ),
    "terminal-without-directory": Difference(
        "they start a terminal elsewhere and do not say so; we fail the start",
        at=1,
        theirs={"id": 2, "result": {"processId": "p", "sandboxType": "none"}},
        ours={"id": 2, "error": {"code": -32603, "message": "..."}},
    ),
    "uri-address": Difference(
        "no UNC server has an address for a name; either way the path is unusable on this host",
        at=1,
        theirs={
            "id": 2,
            "result": {
                "roots": [
                    {
                        "id": "r",
                        "path": "file://[::1]/x",
                        "plugin": None,
                        "skills": [],
                        "namespaceManifests": [],
                        "warnings": "...",
                        "error": "...",
                    }
                ]
            },
        },
        ours={"id": 2, "error": REFUSED},
    ),
}


def _ended(word: bytes, code: int, denied: bool) -> list[object]:
    exited = {"processId": "p", "seq": "process/exited", "exitCode": code, "sandboxDenied": denied}
    return [("stderr", word), exited, {"processId": "p", "seq": "process/closed"}]


def _printed(words: bytes) -> list[object]:
    exited = {"processId": "p", "seq": "process/exited", "exitCode": 0, "sandboxDenied": False}
    return [("stdout", words), exited, {"processId": "p", "seq": "process/closed"}]


def _network_off(word: bytes, why: str, *, denied: bool = True) -> Difference:
    return Difference(
        why, 2, theirs=_ended(b"Operation not permitted", 1, True), ours=_ended(word, 1, denied)
    )


def _started(kind: str) -> dict[str, object]:
    return {"id": 2, "result": {"processId": "p", "sandboxType": kind}}


_NOWHERE: Final = "a socket can be made, and leads nowhere; it is told as the sandbox all the same"
_REFUSED_START: Final = {"id": 2, "error": REFUSED}
_FREE: Final = "of a policy that restricts nothing we say that nothing confines the command"
DIFFERENCES |= {
    "network-off-address": _network_off(b"Network is unreachable", _NOWHERE),
    "network-off-datagram": _network_off(b"Network is unreachable", _NOWHERE),
    "network-off-version-6": _network_off(b"Network is unreachable", _NOWHERE),
    "network-off-bind": _network_off(b"Cannot assign requested address", _NOWHERE),
    "network-off-loopback": _network_off(
        b"Connection refused",
        "a command has a loopback of its own, for servers and their tests; that nobody listens is no denial",
        denied=False,
    ),
    "empty-workspace-roots-unseen": Difference(
        "they start, and fail with 101; we say why it cannot begin there",
        1,
        _started("linuxSeccomp"),
        _REFUSED_START,
    ),
    "legacy-landlock": Difference(
        "they start, and fail with 101; we say which switch to turn off",
        1,
        _started("linuxSeccomp"),
        _REFUSED_START,
    ),
    "legacy-landlock-files": Difference(
        "the same with a file",
        2,
        {"id": 3, "error": {"code": -32603, "message": "..."}},
        {"id": 3, "error": REFUSED},
    ),
    "unrestricted": Difference(_FREE, 1, _started("linuxSeccomp"), _started("none")),
    "unrestricted-legacy-landlock": Difference(_FREE, 1, _started("linuxSeccomp"), _started("none")),
    "managed-network-without-sandbox": Difference(
        "they run it with the whole network; what nothing enforces, we do not run",
        1,
        _started("none"),
        _REFUSED_START,
    ),
    "proxy-without-sandbox": Difference(
        "they start a proxy that the command need not use; what nothing enforces, we do not run",
        1,
        _started("none"),
        _REFUSED_START,
    ),
    "proxy-unknown-name": Difference(
        "a name that nobody knows is unreachable, and not private",
        2,
        _printed(
            b'403 blocked-by-allowlist json {"decision": "deny", "host": "a.invalid", "port": 80, '
            b'"protocol": "http", "reason": "not_allowed_local", "source": "baseline_policy", '
            b'"status": "blocked"}\n'
        ),
        _printed(b"502  {}\n"),
    ),
    "proxy-unreachable-tunnel": Difference(
        "a tunnel is said to stand once it does",
        2,
        _printed(b"200  {}\n"),
        _printed(b"502  {}\n"),
    ),
    "proxy-nul-in-a-name": Difference(
        "a name that is none is refused by an answer; they hang up",
        2,
        _printed(b"socks \n"),
        _printed(b"socks 05020001000000000000\n"),
    ),
    "proxy-odd-literals": Difference(
        "an address in another notation is no host; they resolve it, and may reach what no rule names",
        2,
        _printed(b"502  {}\n200  {}\n"),
        _printed(b"400  {}\n400  {}\n"),
    ),
    "odd-forbidden-name": Difference(
        "a name is checked as the child will read it, so one that hides behind its `=` is withheld too",
        2,
        _printed(b"1\n"),
        _printed(b"0\n"),
    ),
    "write-hidden-by-link": Difference(
        "what covers a denied file denies before it is read-only",
        1,
        {"id": 2, "error": {"code": -32603, "message": "..."}},
        {"id": 2, "error": {"code": -32600, "message": "..."}},
    ),
}


@pytest.fixture(scope="module")
async def theirs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    # Below /tmp it makes no helpers, without which its own sandbox cannot run.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        async with codex_server(requires_codex(), Path(home) / "home") as server:
            yield server


@pytest.fixture(scope="module")
async def ours(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    async with holdfast_server(tmp_path_factory.mktemp("ours") / "home") as server:
        yield server


def cases() -> Iterator[Any]:
    for name in sorted(CASES):
        alone = name == "root-write-escalated"
        mark = root_only("the reference's sandbox puts a /.git over a root that may be written")
        yield pytest.param(name, marks=mark if alone else ())


@pytest.mark.parametrize("name", list(cases()))
async def test_both_servers_answer_alike(
    name: str, ours: ServerProcess, theirs: ServerProcess, tmp_path: Path
) -> None:
    steps = CASES[name]
    expected = await answers_of(theirs.url, tmp_path / "w", steps)
    got = await answers_of(ours.url, tmp_path / "w", steps)
    differing = {
        place: (theirs_says, ours_says)
        for place, (theirs_says, ours_says) in enumerate(zip(expected, got, strict=True))
        if theirs_says != ours_says
    }
    known = DIFFERENCES.get(name)
    assert differing == ({} if known is None else {known.at: (known.theirs, known.ours)})


@pytest.mark.parametrize("flags", [[], ["--listen", "stdio"]])
def test_ending_with_standard_input_is_for_registered_servers_only(flags: list[str], tmp_path: Path) -> None:
    codes = [
        subprocess.run(
            [*command, *flags, "--exit-on-stdin-close"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patient(40),
            check=False,
            env=isolated_environment(tmp_path),
        ).returncode
        for command in (
            [str(requires_codex()), "exec-server"],
            [sys.executable, "-m", "holdfast", "serve"],
        )
    ]
    assert codes == [2, 2]


def test_every_recorded_difference_is_a_case_and_no_case_hides_another() -> None:
    assert all(known.ours != known.theirs for known in DIFFERENCES.values())
    assert set(DIFFERENCES) <= set(CASES)
    modules = (wire_cases, process_cases, file_cases, network_cases)
    assert len(CASES) == sum(len(module.CASES) for module in modules)
