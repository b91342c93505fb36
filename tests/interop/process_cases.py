"""Conversations about processes: starting, reading, writing, ending."""

from collections.abc import Iterator
from typing import Any, Final

from tests.support.dialogue import READ_ALL, READY, Ask, Closed, Step, at, b64, fs, process, sandbox, start


def processes() -> Iterator[tuple[str, list[Step]]]:
    slow = "printf out; sleep 0.2; printf err >&2; sleep 0.2; exit 3"
    yield "events", [start(slow), Closed("p"), process("terminate"), process("signal", signal="interrupt")]
    pages: list[dict[str, Any]] = [
        {},
        {"afterSeq": 1},
        {"afterSeq": 2},
        {"afterSeq": 99},
        {"maxBytes": 0},
        {"maxBytes": 3},
    ]
    pages += [{"maxBytes": 4}, {"maxBytes": 9, "afterSeq": 2}, {"afterSeq": None, "waitMs": None}]
    reads = [process("read", **page) for page in pages]
    yield "read-rules", [start(slow), Closed("p"), *reads]
    yield "read-waits", [start(slow), *(process("read", afterSeq=n, waitMs=5000) for n in range(2))]
    late = [process("read", afterSeq=n, waitMs=5000) for n in (0, 1, 2)]
    yield "read-waits-for-a-late-child", [start("sleep 0.3 & exit 3"), *late]
    wrong: list[dict[str, Any]] = [
        {"afterSeq": -1},
        {"afterSeq": 1.0},
        {"waitMs": "1"},
        {"maxBytes": True},
    ]
    yield "read-wrong-numbers", [process("read", **page) for page in wrong]
    yield (
        "unknown-process",
        [
            process("read"),
            process("terminate"),
            process("signal", signal="interrupt"),
            process("signal", signal="nonsense"),
            process("write", chunk="", writeId="1"),
        ],
    )
    yield "signal-kill", [process("signal", signal="kill")]
    yield (
        "start-failures",
        [
            start("", argv=[]),
            start("", argv=[""]),
            start("", argv=["/no/such"]),
            start("", argv=["$P/a.txt"]),
            start("", argv=["$P/script-without-interpreter"]),
            start("", argv=["/bin/echo", "a\0b"]),
            start("", cwd="$W/gone"),
            start("", cwd="$W/a.txt"),
            start("", cwd="file:///C:/x"),
            start("", cwd="$P"),
            start("", tty=None),
            start("", env=None),
            start("", env={"A": 1}),
            start("", pipeStdin=None),
            start("", envPolicy={"inherit": "all"}),
            start("", argv="true"),
            start("", sandbox={}),
            start("exit 0"),
            Closed("p"),
            start("exit 0"),
        ],
    )
    unknown = [start("", argv=[program], tty=True) for program in ("/no/such", "no-such")]
    yield "terminal-failures", [*unknown]
    yield "terminal-without-directory", [start("exit 3", cwd="$W/gone", tty=True)]
    yield "exact-environment", [start("env | sort; sleep 0.2", env={"A": "1"}), Closed("p")]
    policy = {"inherit": "core", "ignoreDefaultExcludes": False, "exclude": ["P*", "home"], "includeOnly": []}
    inherit = start(
        "env | sort; sleep 0.2", envPolicy=policy | {"set": {"X": "1", "MY_TOKEN": "2"}}, env={"B": "2"}
    )
    yield "environment-policy", [inherit, Closed("p")]
    only = policy | {"includeOnly": ["x?", "LANG"], "set": {"XY": "1", "Z": "2"}}
    yield "environment-policy-only", [start("env | sort; sleep 0.2", envPolicy=only), Closed("p")]
    forbidden = {"openai_identity_token_file": "1", "NODE_REPL_AUTH_TOKEN": "2", "KEPT_TOKEN": "3"}
    yield "forbidden-variables", [start("env | sort; sleep 0.2", env=forbidden), Closed("p")]
    odd = {"": "x", "=C": "z", "A=B": "y", "D": "1", "D=E": "2"}
    yield "odd-names", [start("env | sort; sleep 0.2", env=odd), Closed("p")]
    forbidden = {"openai_identity_token_file=": "1"}
    yield "odd-forbidden-name", [start("env | grep -ci token; sleep 0.2", env=forbidden), Closed("p")]
    yield "odd-name-nul", [start("", env={"A\0": "1"})]
    yield "killed-by-signal", [start("kill -TERM $$; sleep 1"), Closed("p")]
    yield (
        "terminal",
        [start("stty size; sleep 0.2; exit 3", tty=True, env={"PATH": "/bin:/usr/bin"}), Closed("p")],
    )
    path = {"PATH": "/bin:/usr/bin"}
    yield "terminal-shell", [start("env | sort; sleep 0.2", tty=True, env=path), Closed("p")]
    own = path | {"SHELL": "/own"}
    yield "terminal-own-shell", [start("env | sort; sleep 0.2", tty=True, env=own), Closed("p")]
    yield "terminal-killed", [start("kill -TERM $$; sleep 1", tty=True), Closed("p")]
    yield "argv-zero", [start("", argv=["/bin/sh", "-c", "echo $0; sleep 0.2"], arg0="other"), Closed("p")]
    yield "terminate-running", [start("sleep 20"), process("terminate"), Closed("p"), process("terminate")]
    yield "empty-process-id", [start("exit 4", ""), Closed("")]


def stdin() -> Iterator[tuple[str, list[Step]]]:
    def write(chunk: object, write_id: object = "1", name: str = "p") -> Ask:
        return process("write", name, chunk=chunk, writeId=write_id)

    line = b64(b"one\n")
    echo = start("read a; echo $a; read b; echo $b; sleep 0.2", pipeStdin=True)
    yield (
        "write-once",
        [echo, write(line), write(line), write(b64(b"two\n"), "2"), Closed("p"), write(line, "3")],
    )
    yield "write-without-pipe", [start("sleep 0.1"), write(line), Closed("p"), write(line)]
    bad = ["!", "YQ", "YQ=", "YR==", "YQ==\n", "Y Q==", "_-8=", "YQ===", None, 1]
    yield "stdin-base64", [start("sleep 20", pipeStdin=True), *(write(text) for text in bad), write("")]
    yield "write-id", [start("sleep 20", pipeStdin=True), write("", ""), write("", 1), write("", None)]
    kill: list[Step] = [process("terminate"), Closed("p"), write(line), write("", "2")]
    yield "write-after-terminate", [start("sleep 20", pipeStdin=True), write("", "2"), *kill]


def confined() -> Iterator[tuple[str, list[Step]]]:
    def tries(action: str, family: str = "AF_INET", kind: str = "SOCK_STREAM") -> list[Step]:
        script = (
            f"import socket, sys, time\ntry: socket.socket(socket.{family}, socket.{kind}).{action}\n"
            "except OSError as e: sys.stderr.write(e.strerror); sys.stderr.flush(); time.sleep(0.2)\n"
            "sys.exit(1)"
        )
        return [start("", argv=["/usr/bin/python3", "-c", script], sandbox=sandbox(READ_ALL)), Closed("p")]

    roots: dict[str, Any] = {
        "path": {"type": "special", "value": {"kind": "project_roots"}},
        "access": "write",
    }
    yield "network-off-address", tries("connect(('192.0.2.1', 9))")
    yield "network-off-datagram", tries("connect(('192.0.2.1', 9))", kind="SOCK_DGRAM")
    yield "network-off-version-6", tries("connect(('2001:db8::1', 9))", family="AF_INET6")
    yield "network-off-bind", tries("bind(('192.0.2.1', 0))")
    yield "network-off-loopback", tries("connect(('127.0.0.1', 9))")
    nowhere = sandbox(READ_ALL, roots, workspaceRoots=[])
    yield "empty-workspace-roots", [start("touch x || exit 3", sandbox=nowhere), Closed("p")]
    yield "empty-workspace-roots-unseen", [start("exit 3", sandbox=sandbox(roots, workspaceRoots=[]))]
    yield "legacy-landlock", [start("exit 3", sandbox=sandbox(READ_ALL, useLegacyLandlock=True))]
    escalated = sandbox(
        {"path": READ_ALL["path"], "access": "write"},
        at("dir", "deny"),
        network="enabled",
        sandboxOverride="escalatedSandboxWithRestrictions",
    )
    held = (
        "cat dir/b.txt; echo x >dir/new; rm -r dir; echo x >>a.txt && cat a.txt; echo lost >/dev/null && "
        "head -c 2 /dev/zero | wc -c; test -c /dev/full && echo x >/dev/full; ls /dev/pts >/dev/null; "
        "test -c /dev/urandom && echo random; mount -t tmpfs x dir; sleep 0.2"
    )
    yield (
        "root-write-escalated",
        [
            start(f"exec 2>/dev/null; {held}", sandbox=escalated, env={"PATH": "/usr/bin:/bin:/usr/sbin"}),
            Closed("p"),
            fs("readFile", "dir/b.txt"),
            fs("readFile", "dir/new"),
            fs("readFile", "a.txt"),
        ],
    )
    free = {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}
    yield "unrestricted", [start("exit 3", sandbox=free), Closed("p")]
    yield "unrestricted-legacy-landlock", [start("exit 3", sandbox=free | {"useLegacyLandlock": True})]
    yield "managed-network-without-sandbox", [start("exit 3", enforceManagedNetwork=True)]


CASES: Final[dict[str, list[Step]]] = {
    name: [*READY, *steps] for group in (processes, stdin, confined) for name, steps in group()
}
