"""A proxy that belongs to one command: what the command is told, what it reaches, who decides."""

import base64
import errno
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.commands.daemons import serve
from holdfast.commands.daemons import serving as serve_command
from holdfast.sandbox.plan.select import Backend, Choice
from holdfast.server.connection import ExecConnection
from holdfast.server.edges.binding import ServeOptions
from holdfast.server.executor import Executor
from holdfast.server.processes.proxying import HTTP_PORT, SOCKS_PORT
from holdfast.wire import network
from tests.support.egress import listening
from tests.support.httpd import httpd, reply
from tests.support.managed import (
    LIMITED,
    begin,
    decide,
    decisions,
    finish,
    proxied,
    question,
    run,
)
from tests.support.peer import Refused, ready, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
PAGES: dict[str, Any] = {"/page": reply(body=b"hello")}


async def test_a_command_is_told_of_its_proxy_and_reaches_what_is_allowed_through_it() -> None:
    code = """
    import urllib.request
    print(os.environ["CODEX_NETWORK_PROXY_ACTIVE"], os.environ["NO_PROXY"] == "")
    print(urllib.request.urlopen(f"http://localhost:{sys.argv[1]}/page", timeout=60).read())
    print(connect(f"localhost:{sys.argv[1]}", "GET /page HTTP/1.0\\r\\n\\r\\n")[-5:])
    print(socks(b"localhost", int(sys.argv[1]), b"GET /page HTTP/1.0\\r\\n\\r\\n")[-5:])
    print(code(get("other.example")), code(connect("other.example:443")), code(socks(b"other.example", 443)))
    """
    async with httpd(PAGES) as web, serving() as (url, _), ready(url) as peer:
        name = await begin(peer, code, web.port, **proxied(domains={"localhost": "allow"}))
        assert await finish(peer, name) == "1 True\nb'hello'\nhello\nb'hello'\n403 403 02\n"
        assert decisions(peer, name) == [
            *[("localhost", "allow", "allow")] * 3,
            *[("other.example", "deny", "not_allowed")] * 3,
        ]


async def test_no_other_port_and_no_other_address_is_reached() -> None:
    code = """
    for address, port in (("127.0.0.1", int(sys.argv[1])), ("192.0.2.1", 80), ("2001:db8::1", 80)):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
            print(errno.errorcode[sock.connect_ex((address, port))])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        print(errno.errorcode[sock.connect_ex(("192.0.2.1", 53))])
    """
    async with httpd(PAGES) as web, serving() as (url, _), ready(url) as peer:
        said = await run(peer, code, web.port, **proxied(domains={"*": "allow"}))
        assert said == "ECONNREFUSED\nENETUNREACH\nENETUNREACH\nENETUNREACH\n"


async def test_a_proxy_belongs_to_its_command_alone() -> None:
    reach = """
    for port in sys.argv[1:]:
        with socket.socket() as sock:
            print(sock.connect_ex(("127.0.0.1", int(port))))
    """
    async with serving() as (url, _), ready(url) as peer:
        wait = "print('up', flush=True); sys.stdin.read()"
        holder = await begin(peer, wait, **proxied(domains={"*": "allow"}), pipeStdin=True)
        await peer.output_has(holder, b"up")
        for port in (HTTP_PORT, SOCKS_PORT):
            with socket.socket() as sock:
                assert sock.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
        alone: dict[str, Any] = {"sandbox": LIMITED, "enforceManagedNetwork": True, "managedNetwork": {}}
        assert await run(peer, reach, HTTP_PORT, SOCKS_PORT, **alone) == f"{errno.ECONNREFUSED}\n" * 2
        said = await run(peer, "print(code(get('a.example')))", **proxied())
        assert said == "403\n"  # its own proxy, with rules of its own
        await peer.call("process/terminate", {"processId": holder})


@pytest.mark.parametrize(
    "more",
    [
        proxied(enabled=False),
        proxied(0),
        proxied(domains={"*": "deny"}),
        proxied(domains={"a b": "allow"}),
        proxied(credentialProviders={"x": {}}),
        proxied(dangerouslyAllowAllUnixSockets=True),
        proxied(sandbox=None),
        {**proxied(1000), "processId": ""},
        {**proxied(1000), "processId": "x" * 257},
    ],
)
async def test_what_cannot_be_had_runs_nothing(more: dict[str, Any], tmp_path: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.start("p", f"touch {tmp_path}/ran", **more)
        assert refused.value.code == -32602
        assert not (tmp_path / "ran").exists()


# --- who decides


async def test_what_the_client_decides_is_done() -> None:
    code = """
    for name in ("localhost", "ask.example", "no.example", "denied.example", "10.0.0.1"):
        answer = get(f"{name}:{sys.argv[1]}", "/page")
        print(code(answer), "hello" in answer)
    """
    async with httpd(PAGES) as web, serving() as (url, _), ready(url) as peer:
        allowed = {"localhost": "allow", "denied.example": "deny"}
        asked = proxied(60_000, domains=allowed, reviewDomains=["localhost"])
        name = await begin(peer, code, web.port, **asked)
        first = await question(peer, name, 1)
        assert first["params"] == {
            "processId": name,
            "request": {"protocol": "http", "host": "localhost", "port": web.port},
        }
        await decide(peer, first, "allow")
        await decide(peer, await question(peer, name, 2), "ask", "later")
        await decide(peer, await question(peer, name, 3), "deny", "nope")
        said = await finish(peer, name)
        assert said == "200 True\n403 False\n403 False\n403 False\n403 False\n"
        assert decisions(peer, name) == [
            ("localhost", "allow", "not_allowed"),
            ("ask.example", "ask", "later"),
            ("no.example", "deny", "nope"),
            ("denied.example", "deny", "denied"),
            ("10.0.0.1", "deny", "not_allowed_local"),
        ]


async def test_an_answer_does_not_wait_behind_a_long_poll() -> None:
    async with serving() as (url, _), ready(url) as peer:
        name = await begin(peer, "print(code(get('a.example')))", **proxied(60_000))
        asked = await question(peer, name)
        poll = await peer.ask("process/read", {"processId": name, "waitMs": 3_600_000})
        await decide(peer, asked, "deny", "no")
        assert (await peer.answer(poll))["chunks"]
        assert await finish(peer, name) == "403\n"


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32000, "message": "no"}},
        {"result": {}},
        {"result": {"decision": {"type": "deny", "reason": "x" * 1025}}},
        {"result": {"decision": {"type": "deny", "reason": "a\u0007b"}}},
        {"result": {"decision": {"type": "perhaps", "reason": "x"}}},
    ],
)
async def test_an_answer_that_is_none_means_no(answer: dict[str, Any]) -> None:
    async with serving() as (url, _), ready(url) as peer:
        name = await begin(peer, "print(code(get('a.example')))", **proxied(60_000))
        await peer.send({"id": (await question(peer, name))["id"], **answer})
        assert await finish(peer, name) == "403\n"
        assert decisions(peer, name) == [("a.example", "deny", "not_allowed")]


async def test_no_answer_in_time_means_no_and_one_that_comes_later_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "GRACE_S", 0.0)
    async with serving() as (url, _), ready(url) as peer:
        name = await begin(peer, "print(code(get('a.example')))", **proxied(1))
        assert await finish(peer, name) == "403\n"
        await decide(peer, await question(peer, name), "allow")
        assert await peer.call("environment/status") == {"status": "ready"}


async def test_an_answer_to_what_was_never_asked_ends_the_connection() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.send({"id": 1, "result": {"decision": {"type": "allow"}}})
        await peer.link.wait_closed()


async def test_a_lost_link_means_no_and_the_next_one_is_asked_again() -> None:
    code = """
    print(code(get("a.example")), flush=True)
    sys.stdin.readline()
    print(code(get("b.example")))
    """
    async with serving() as (url, _):
        async with ready(url) as peer:
            name = await begin(peer, code, **proxied(3_600_000), pipeStdin=True)
            await question(peer, name)
            session = peer.session_id
        async with ready(url, resume=session) as back:
            await back.write(name, b"\n", "w")
            asked = await question(back, name)
            assert (asked["id"], asked["params"]["request"]["host"]) == (1, "b.example")
            await decide(back, asked, "deny", "no")
            await back.closed(name)
            page = await back.call("process/read", {"processId": name})
            said = b"".join(base64.b64decode(chunk["chunk"]) for chunk in page["chunks"])
            assert said == b"403\n403\n"


async def test_a_question_ends_with_the_command() -> None:
    async with serving() as (url, _), ready(url) as peer:
        name = await begin(peer, "get('a.example')", **proxied(3_600_000))
        asked = await question(peer, name)
        await peer.call("process/terminate", {"processId": name})
        await peer.closed(name)
        await decide(peer, asked, "allow")
        assert await peer.call("environment/status") == {"status": "ready"}


async def test_an_answer_right_before_the_end_of_the_connection_counts() -> None:
    code = "print(code(get(f'localhost:{sys.argv[1]}', '/page')), flush=True); sys.stdin.readline()"
    async with httpd(PAGES) as web, serving() as (url, _):
        async with ready(url) as peer:
            asked = proxied(3_600_000, allowLocalBinding=True)
            name = await begin(peer, code, web.port, **asked, pipeStdin=True)
            await decide(peer, await question(peer, name), "allow")
            session = peer.session_id
        async with ready(url, resume=session) as back:
            page = await back.call("process/read", {"processId": name, "waitMs": 60_000})
            assert base64.b64decode(page["chunks"][0]["chunk"]) == b"200\n"


async def test_nothing_of_a_command_outlives_it_and_so_does_no_proxy() -> None:
    """The reference keeps the proxy for background children; here they end with the command."""
    code = """
    if os.fork() == 0:
        sys.stdin.readline()
        get("late.example")
        os._exit(0)
    """
    async with serving() as (url, _), ready(url) as peer:
        name = await begin(peer, code, **proxied(), pipeStdin=True)
        await peer.closed(name)
        assert decisions(peer, name) == []


async def test_start_up_files_are_read_behind_the_proxy_and_their_own_proxy_stays_theirs(
    tmp_path: Path,
) -> None:
    (tmp_path / ".bashrc").write_text(
        "export HTTP_PROXY=http://theirs:1 FROM_RC=1\n"
        "IFS=: read -r _ host port <<<${https_proxy}; host=${host#//}\n"
        "export REACHED=$(exec 3<>/dev/tcp/$host/$port && echo yes)\n",
        "utf-8",
    )
    shell = {"name": "bash", "path": "/bin/bash"}
    show = "echo ${HTTP_PROXY%:*} $FROM_RC $REACHED ${ALL_PROXY%%:*} $CODEX_NETWORK_PROXY_ACTIVE"
    more = {
        "env": {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        "shellSnapshot": {"scopeId": "s", "shell": shell},
    }
    async with serving() as (url, _), ready(url) as peer:
        for name, held in (("with", proxied()), ("without", {"sandbox": LIMITED})):
            await peer.start(name, "/bin/bash", "-lc", show, **more, **held)
            await peer.closed(name)
        assert peer.output("with") == b"http://127.0.0.1 1 yes socks5h 1\n"
        assert peer.output("without") == b"http://theirs 1 yes\n"


async def test_records_are_left_out_while_the_client_does_not_keep_up() -> None:
    class Full:
        """A wire that counts."""

        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def send(self, message: bytes) -> None:
            self.sent.append(message)

        def pause_reading(self) -> None: ...
        def resume_reading(self) -> None: ...
        def abort(self) -> None: ...

    wire = Full()
    connection = ExecConnection(Executor(), wire, label="test")
    connection.offer(b"1")
    connection.on_writing_paused()
    connection.offer(b"2")
    connection.push(b"3")
    connection.on_writing_resumed()
    connection.offer(b"4")
    assert wire.sent == [b"1", b"3", b"4"]


async def test_where_no_proxy_can_be_had_none_is_announced_and_none_is_started(tmp_path: Path) -> None:
    async with serving(choice=Choice(Backend.LANDLOCK)) as (url, _), ready(url) as peer:
        info = await peer.call("environment/info")
        assert info["capabilities"]["networkProxyLaunch"] is False
        with pytest.raises(Refused) as refused:
            await peer.start("p", f"touch {tmp_path}/ran", **proxied())
        assert refused.value.code == -32602
        assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_bubblewrap_has_the_same_proxy_which_belongs_to_its_command_alone() -> None:
    code = """
    page = get(f"localhost:{sys.argv[1]}", "/page")
    print(page[-5:], code(get("b.example")), code(socks(b"b.example", 443)))
    for address, port in (("127.0.0.1", int(sys.argv[1])), ("192.0.2.1", 80)):
        with socket.socket() as sock:
            print(errno.errorcode[sock.connect_ex((address, port))])
    """
    async with httpd(PAGES) as web, serving(choice=Choice(Backend.BWRAP)) as (url, _), ready(url) as peer:
        assert (await peer.call("environment/info"))["capabilities"]["networkProxyLaunch"] is True
        name = await begin(peer, code, web.port, **proxied(domains={"localhost": "allow"}))
        assert await finish(peer, name) == "hello 403 02\nECONNREFUSED\nENETUNREACH\n"
        assert [reason for _, _, reason in decisions(peer, name)] == ["allow", "not_allowed", "not_allowed"]


async def test_private_addresses_take_the_executors_own_proxy_where_the_operator_says_so() -> None:
    """`serve --proxy-private-ips-via-upstream`; loopback stays here."""
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabove"
    code = """
    print(get("10.0.0.1", "/x")[-5:])
    print(get("a.example")[-5:])
    print(get(f"localhost:{sys.argv[1]}", "/page")[-5:])
    """
    async with httpd(PAGES) as web, listening(page, head=True) as (port, heard):
        environ = {"PATH": "/usr/bin:/bin", "ALL_PROXY": f"http://127.0.0.1:{port}"}
        async with serving(environ=environ) as (url, executor):
            executor.private_via_upstream = True
            async with ready(url, holdfast=True) as peer:
                hosts = {"10.0.0.1": "allow", "localhost": "allow", "a.example": "allow"}
                asked = proxied(domains=hosts, allowUpstreamProxy=True)
                assert await run(peer, code, web.port, **asked) == "above\nabove\nhello\n"
    assert [head.split(b"\r\n")[0] for head in heard] == [
        b"GET http://10.0.0.1/x HTTP/1.1",
        b"GET http://a.example/ HTTP/1.1",
    ]


@pytest.mark.parametrize("flags", [(), ("--proxy-private-ips-via-upstream",)])
def test_the_operator_says_so_on_the_command_line(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[ServeOptions] = []
    monkeypatch.setattr(serve_command, "_run", lambda options, *_more: given.append(options))
    done = CliRunner().invoke(serve.serve, ["--listen", "stdio", *flags])
    assert done.exit_code == 0, done.output
    assert [options.private_via_upstream for options in given] == [bool(flags)]
