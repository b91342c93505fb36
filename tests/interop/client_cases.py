"""What a user of the client sees, as values: the same calls on any server, and what must come of them.

A case that a server answers in its own way names that answer as `theirs`; the reason is recorded with
the test.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.client.environment import Environment
from holdfast.client.events.ordering import Closed, Exited, Output
from holdfast.client.files import Found
from holdfast.client.networkfilter import NetworkFilter
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError
from holdfast.wire.network import PolicyQuestion
from tests.support.httpd import httpd, reply
from tests.support.managed import INSIDE
from tests.support.peer import WAIT_S, descendants_named, seen_running

Behaviour: TypeAlias = Callable[[Environment, Path], Awaitable[object]]

READER: Final = 'echo ready; while read -r line; do [ "$line" = end ] && exit 5; echo "got $line"; done'
HOSTS: Final = ("b.example", "denied.example", "10.0.0.1", "a.example")
BIG_BYTES: Final = 8 * 1024 * 1024
BODY: Final = hashlib.shake_128(b"body").digest(3 * 1024 * 1024)
PROFILE: Final = """
[filesystem]
":root" = "read"
":workspace" = "write"
"**/.env" = "deny"
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A behaviour, what it shows on our server, and on the reference."""

    run: Behaviour
    ours: object
    theirs: object


CASES: Final[dict[str, Case]] = {}


def shows(*ours: object, theirs: tuple[object, ...] | None = None) -> Callable[[Behaviour], Behaviour]:
    """Register a behaviour by its name; it returns a tuple of these values."""

    def register(behaviour: Behaviour) -> Behaviour:
        name = f"client-{behaviour.__name__.replace('_', '-')}"
        assert name not in CASES
        CASES[name] = Case(behaviour, ours, ours if theirs is None else theirs)
        return behaviour

    return register


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


async def error_of(work: Awaitable[object]) -> type[HoldfastError] | None:
    """The class of what it raises; None if it does not."""
    try:
        await work
    except HoldfastError as exc:
        return type(exc)
    return None


async def gone(mark: str) -> bool:
    async with asyncio.timeout(WAIT_S):
        while descendants_named(mark):
            await asyncio.sleep(0.01)
    return True


# --- a command and what it says


@shows(3, b"out\n", b"err\n", False, 0)
async def result(env: Environment, _: Path) -> object:
    done = await env.run(sh("echo out; echo err >&2; exit 3"))
    return done.code, done.stdout, done.stderr, done.sandbox_denied, done.dropped_bytes


@shows(True, None, "none", theirs=(False, None, None))
async def report(env: Environment, _: Path) -> object:
    done = await env.run(["/bin/true"])
    backend = None if done.enforcement is None else done.enforcement.backend
    return done.usage is not None, done.denial, backend


@shows(True, True, Closed, [7], b"one\n", b"two\n")
async def events(env: Environment, _: Path) -> object:
    process = await env.start(sh("echo one; echo two >&2; exit 7"))
    first = [event async for event in process]
    said = {
        name: b"".join(e.data for e in first if isinstance(e, Output) and e.stream == name)
        for name in ("stdout", "stderr")
    }
    return (
        [event.seq for event in first] == list(range(1, len(first) + 1)),
        [event async for event in process] == first,
        type(first[-1]),  # the exit may overtake output, which a busy machine shows
        [event.code for event in first if isinstance(event, Exited)],
        said["stdout"],
        said["stderr"],
    )


@shows(b"ready\ngot it\n", b"err\n", 0)
async def streams_read_apart_while_it_runs(env: Environment, _: Path) -> object:
    process = await env.start(sh('echo ready; read line; echo "got $line"; echo err >&2'), stdin=True)
    said = b""
    async for chunk in process.stdout:
        said += chunk
        if said == b"ready\n":
            await process.write(b"it\n")
    return said, b"".join([chunk async for chunk in process.stderr]), (await process.wait()).code


@shows(b"\0\xff\xfe\n\r\x1b")
async def bytes_that_are_no_text(env: Environment, _: Path) -> object:
    return ((await env.run(sh(r"printf '\000\377\376\n\r\033'"))).stdout,)


@shows(BIG_BYTES, hashlib.sha256(b"x" * BIG_BYTES).hexdigest())
async def big_output(env: Environment, _: Path) -> object:
    process = await env.start(sh(f"head -c {BIG_BYTES} /dev/zero | tr '\\0' x"))
    digest, size = hashlib.sha256(), 0
    async for chunk in process.stdout:
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


@shows(1000, True, True, 5_000_010 - 1000)
async def head_and_tail(env: Environment, _: Path) -> object:
    script = "echo head; head -c 5000000 /dev/zero; echo tail"
    done = await env.run(sh(script), max_output_bytes=1000)
    said = done.stdout
    return len(said), said.startswith(b"head\n"), said.endswith(b"tail\n"), done.dropped_bytes


@shows([b"%d\n" % number for number in range(12)])
async def many_at_once(env: Environment, _: Path) -> object:
    done = await asyncio.gather(*(env.run(["/bin/echo", str(number)]) for number in range(12)))
    return ([one.stdout for one in done],)


@shows(True, b"ONLY=this\n", b"another\n", True)
async def directory_environment_and_name(env: Environment, work: Path) -> object:
    where = (await env.run(["/bin/pwd"], cwd=work)).stdout.decode().strip()
    only = (await env.run(["/usr/bin/env"], env={"ONLY": "this"})).stdout
    name = (await env.run(sh("echo $0"), arg0="another")).stdout
    inherited = (await env.run(sh('echo "$HOME:$PATH"'))).stdout.strip()
    return where == str(work), only, name, inherited not in (b":", b"")


# --- input


@shows(5, b"".join(b"got %d\n" % number for number in range(30)))
async def input_line_by_line(env: Environment, _: Path) -> object:
    process = await env.start(sh(READER), stdin=True)
    lines = [b"%d\n" % number for number in range(30)]
    await asyncio.gather(*(process.write(line) for line in [*lines, b"end\n"]))
    done = await process.wait()
    return done.code, done.stdout.removeprefix(b"ready\n")


@shows(hashlib.sha256(b"y" * 1_000_000).hexdigest())
async def much_input(env: Environment, _: Path) -> object:
    process = await env.start(sh("head -c 1000000 | sha256sum"), stdin=True)
    await process.write(b"y" * 1_000_000)
    return ((await process.wait()).stdout.decode().split()[0],)


@shows(b"one two", b"all", None, theirs=(None, None, InvalidRequest))
async def end_of_input(env: Environment, _: Path) -> object:
    process = await env.start(["/bin/cat"], stdin=True)
    await process.write(b"one ")
    await process.write(b"two")
    refused = await error_of(process.close_stdin())
    if refused is None:
        return (await process.wait()).stdout, (await env.run(["/bin/cat"], input=b"all")).stdout, None
    await process.terminate()
    assert await error_of(env.run(["/bin/cat"], input=b"all")) is refused
    return None, None, refused


@shows(InvalidRequest)
async def input_for_a_command_that_takes_none(env: Environment, _: Path) -> object:
    process = await env.start(["/bin/sleep", "600"])
    refused = await error_of(process.write(b"x"))
    await process.terminate()
    await process.wait()
    return (refused,)


# --- a terminal


@shows(True, True, True, b"", 6)
async def terminal(env: Environment, _: Path) -> object:
    script = '[ -t 0 ] && [ -t 1 ] && echo both; read -r line; echo "got $line"; echo err >&2; exit 6'
    process = await env.start(sh(script), tty=True)
    await process.write(b"it\n")
    done = await process.wait()
    return b"both" in done.stdout, b"got it" in done.stdout, b"err" in done.stdout, done.stderr, done.code


@shows(b"24 80", 0)
async def terminal_size(env: Environment, _: Path) -> object:
    done = await env.run(["/bin/stty", "size"], tty=True)
    return done.stdout.strip(), done.code


@shows(None, True, theirs=(InvalidRequest, False))
async def terminal_resized(env: Environment, _: Path) -> object:
    process = await env.start(sh("read -r line; stty size"), tty=True)
    refused = await error_of(process.resize(33, 101))
    await process.write(b"\n")
    return refused, b"33 101" in (await process.wait()).stdout


@shows(0, True)
async def end_of_input_on_a_terminal(env: Environment, _: Path) -> object:
    process = await env.start(sh("echo up; cat; echo over"), tty=True)
    async for chunk in process.stdout:
        if b"up" in chunk:
            break
    await process.write(b"line\n")
    await process.close_stdin()
    done = await process.wait()
    return done.code, b"over" in done.stdout


@shows(137, theirs=(1,))
async def terminal_terminated(env: Environment, _: Path) -> object:
    process = await env.start(["/bin/sleep", "600"], tty=True)
    await process.terminate()
    return ((await process.wait()).code,)


# --- ending a command


TRAPS: Final = "trap 'exit 41' TERM; trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done"


@shows(42)
async def interrupted(env: Environment, _: Path) -> object:
    process = await env.start(sh(TRAPS))
    async for _chunk in process.stdout:
        await process.signal("SIGINT")
    return ((await process.wait()).code,)


@shows(None, 41, theirs=(InvalidRequest, None))
async def signalled(env: Environment, _: Path) -> object:
    process = await env.start(sh(TRAPS))
    await anext(process.stdout)
    refused = await error_of(process.signal("SIGTERM"))
    if refused is not None:
        await process.terminate()
    done = await process.wait()
    return refused, None if refused else done.code


@shows(137, None)
async def terminated(env: Environment, _: Path) -> object:
    process = await env.start(["/bin/sleep", "600"])
    await process.terminate()
    done = await process.wait()
    return done.code, await error_of(process.terminate())


@shows(True, True)
async def out_of_time_or_cancelled(env: Environment, work: Path) -> object:
    mark, ended = f"600.{abs(hash(work)) % 10**9:09}", False
    try:
        await env.run(["/bin/sleep", mark], timeout_s=0.2)
    except TimeoutError:
        ended = await gone(mark)
    running = asyncio.ensure_future(env.run(["/bin/sleep", mark]))
    await seen_running(mark)
    running.cancel()
    await asyncio.wait([running])
    return ended, running.cancelled() and await gone(mark)


# --- what cannot be


@shows(OperationFailed, OperationFailed)
async def programs_that_cannot_be_started(env: Environment, work: Path) -> object:
    (work / "text").write_text("no program", "utf-8")
    return tuple([await error_of(env.run([name])) for name in ("/no/such/program", str(work / "text"))])


@shows(OperationFailed, OperationFailed)
async def directories_that_are_none(env: Environment, work: Path) -> object:
    (work / "file").touch()
    return tuple([await error_of(env.run(["/bin/true"], cwd=work / name)) for name in ("gone", "file")])


@shows([UsageError] * 5, True)
async def calls_that_make_no_sense(env: Environment, work: Path) -> object:
    caught: list[HoldfastError] = []
    for attempt in (
        env.run([]),
        env.run("true"),  # what people try
        env.run(["/bin/true"], cwd="relative"),
        env.run(["/bin/true"], cwd=work.as_uri()),
        env.files.read(work.as_uri()),
    ):
        try:
            await attempt
        except HoldfastError as exc:
            caught.append(exc)
    return [type(exc) for exc in caught], all(exc.remedy for exc in caught)


# --- the server itself


@shows("ready", True, "sh")
async def status_and_information(env: Environment, _: Path) -> object:
    named = env.info.cwd is not None and env.info.executor_version is not None
    return await env.status(), named, Path(env.info.shell.path).name[-2:]


@shows([True] * 4, theirs=([False] * 4,))
async def our_own_additions(env: Environment, _: Path) -> object:
    can = env.info.capabilities
    return ([can.holdfast_close_stdin, can.holdfast_resize, can.holdfast_signals, can.holdfast_usage],)


# --- files


@shows(
    "text",
    (True, False, False, 4),
    ["new dir"],
    True,
    True,
    False,
    [OperationFailed, NotFound, InvalidRequest],
)
async def files(env: Environment, work: Path) -> object:
    there, folder = env.files, work / "new dir"
    await there.make_directory(folder)
    await there.write(folder / "é", "text")
    text, about = await there.read_text(folder / "é"), await there.stat(folder / "é")
    names = [entry.file_name for entry in await there.list(work)]
    await there.copy(folder, work / "copy", recursive=True)
    walked = (await there.walk(work / "copy")).entries == (Found(str(work / "copy" / "é"), False),)
    (work / "link").symlink_to("copy")
    canonical = await there.canonical(work / "link") == str((work / "copy").resolve())
    refused = [await error_of(there.remove(work / "copy"))]
    await there.remove(work / "copy", recursive=True)
    await there.remove(work / "copy", missing_ok=True)
    refused += [await error_of(there.remove(work / "copy")), await error_of(there.read(work))]
    kind = (about.is_file, about.is_directory, about.is_symlink, about.size)
    return text, kind, names, walked, canonical, await there.exists(work / "copy"), refused


@shows(True, True, True)
async def files_in_blocks(env: Environment, work: Path) -> object:
    await env.files.write_blocks(work / "file", [BODY, b"", b"end"])
    came = [block async for block in env.files.open_blocks(work / "file")]
    whole = BODY + b"end"
    return (work / "file").read_bytes() == whole, b"".join(came) == whole, len(came) > 1


@shows(InvalidRequest, True)
async def watched_files(env: Environment, work: Path) -> object:
    (work / "there").touch()
    refused = await error_of(env.files.watch(work / "there"))
    watch = await env.files.watch(work / "absent")
    (work / "absent").touch()
    async with asyncio.timeout(WAIT_S):
        await watch.changed()
    return refused, watch.fired


# --- HTTP


@shows((200, b"ok"), ("POST", b"sent", ["2"]), (302, "/big"), True, (404, b"none"))
async def http(env: Environment, _: Path) -> object:
    replies = {
        "/big": reply(200, BODY),
        "/moved": reply(302, b"", ("Location", "/big")),
        "/none": reply(404, b"none"),
    }
    async with httpd({**replies}) as web:
        sent = await env.http.request("POST", web.url("/x"), headers={"X-B": "2"}, content=b"sent")
        got = web.received[0]
        stopped = await env.http.request("GET", web.url("/moved"), follow_redirects=False)
        followed = await env.http.request("GET", web.url("/moved"))
        none = await env.http.request("GET", web.url("/none"))
    return (
        (sent.status, sent.body),
        (got.method, got.body, got.values("x-b")),
        (stopped.status, stopped.header("Location")),
        followed.body == BODY,
        (none.status, none.body),
    )


@shows(200, "1", True, b"first", OperationFailed)
async def http_streamed(env: Environment, _: Path) -> object:
    async def short(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        await writer.drain()

    async with httpd({"/big": reply(200, BODY, ("X-A", "1")), "/short": short}) as web:
        async with env.http.stream("GET", web.url("/big")) as streamed:
            came = b"".join([piece async for piece in streamed])
        async with env.http.stream("GET", web.url("/short")) as broken:
            body = aiter(broken)
            first, refused = await anext(body), await error_of(anext(body))
    return streamed.status, streamed.header("X-a"), came == BODY, first, refused


@shows(UsageError, OperationFailed)
async def http_that_cannot_be(env: Environment, _: Path) -> object:
    async with httpd() as web:
        pass
    return (
        await error_of(env.http.request("GET", "no url")),
        await error_of(env.http.request("GET", web.url(), timeout_s=5)),
    )


# --- policies


def workspace(work: Path) -> Path:
    root = work / "ws"
    root.mkdir()
    (root / ".env").write_text("secret", "utf-8")
    return root


@shows("linuxSeccomp", True, b"", True, False, ("none", b"secret"))
async def confined_command(env: Environment, work: Path) -> object:
    root = workspace(work)
    command = sh("echo x > in; cat .env; echo x > ../out")
    process = await env.start(command, cwd=root, policy=Policy.from_toml(PROFILE, root=root))
    done = await process.wait()
    made = (root / "in").exists(), (work / "out").exists()
    free = await env.start(["/bin/cat", ".env"], cwd=root, policy=Policy.full_access())
    free_end = free.sandbox_type, (await free.wait()).stdout
    return process.sandbox_type, done.code != 0, done.stdout, *made, free_end


@shows(True, ("filesystem", True, "write", True), theirs=(True, None))
async def denial(env: Environment, work: Path) -> object:
    root = workspace(work)
    policy = Policy.workspace_write(root)
    done = await env.run(sh("echo x > /usr/forbidden"), cwd=root, policy=policy)
    if done.denial is None:
        return done.sandbox_denied, None
    told = done.denial
    return done.sandbox_denied, (told.kind, told.path == "/usr/forbidden", told.access, told.rule is not None)


@shows(True, 0)
async def network_off_and_on(env: Environment, work: Path) -> object:
    async with httpd() as web:
        knock = ["/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{web.port}"]
        policy = Policy.workspace_write(work)
        off = await env.run(knock, cwd=work, policy=policy)
        on = await env.run(knock, cwd=work, policy=policy.with_network(True))
    return off.code != 0, on.code


@shows(b"1", [b"2"], [True] * 4, False)
async def confined_files(env: Environment, work: Path) -> object:
    root, there = workspace(work), env.files
    policy = Policy.from_toml(PROFILE, root=root)
    await there.write(root / "in", b"1", policy=policy)
    await there.write_blocks(root / "in2", [b"2"], policy=policy)
    inside = await there.read(root / "in", policy=policy)
    blocks = [block async for block in there.open_blocks(root / "in2", policy=policy)]
    refused = [
        await error_of(attempt) is not None
        for attempt in (
            there.write(work / "out", b"x", policy=policy),
            there.make_directory(work / "out", policy=policy),
            there.read(root / ".env", policy=policy),
            anext(there.open_blocks(root / ".env", policy=policy)),
        )
    ]
    return inside, blocks, refused, (work / "out").exists()


@shows(
    "200 hello 502 403 403 403 403",
    [("localhost", "http")] * 2 + [("b.example", "http"), ("a.example", "http")],
    [
        ("localhost", "allow", "decider"),
        ("localhost", "allow", "decider"),
        ("b.example", "deny", "decider"),
        ("denied.example", "deny", "baseline_policy"),
        ("10.0.0.1", "deny", "baseline_policy"),
        ("a.example", "deny", "decider"),
    ],
)
async def network_by_host(env: Environment, work: Path) -> object:
    """The client decides about what no rule mentions, and hears of everything."""
    asked: list[tuple[str, str]] = []
    told: list[tuple[str, str, str]] = []

    async def decide(question: PolicyQuestion) -> bool:
        asked.append((question.host, question.protocol))
        return question.host == "localhost"

    async with httpd({"/page": reply(body=b"hello")}) as web:
        network = NetworkFilter(
            ["localhost"],
            ["denied.example"],
            ["localhost"],
            decide=decide,
            on_decision=lambda one: told.append((one.host, one.decision, one.source)),
        )
        code = f"""
page = get("localhost:{web.port}", "/page")
print(code(page), page[-5:], code(get("localhost:1")), *map(code, map(get, {HOSTS!r})), end="")
"""
        done = await env.run(
            ["/usr/bin/python3", "-c", INSIDE + code],
            cwd=work,
            policy=Policy.workspace_write(work),
            network=network,
        )
    return done.stdout.decode() + done.stderr.decode(), asked, told
