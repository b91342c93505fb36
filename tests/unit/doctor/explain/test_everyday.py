"""Everyday failures are known by the texts that programs really print, and advise no grant."""

import re

from holdfast.doctor.explain.everyday import EVERYDAY_ROWS
from holdfast.doctor.explain.explanation import TABLE, explain
from holdfast.sandbox.reasons.denials import DenialEvidence, classify
from holdfast.sandbox.reasons.fingerprint_table import Layer
from holdfast.sandbox.reasons.fingerprints import find_needles
from tests.support.rows import every_row

TEXTS: list[tuple[str, str]] = [
    # Of each CLI: codex, claude, gemini, qwen, opencode, and what their providers send.
    ("provider.rate", "ERROR: exceeded retry limit, last status: 429 Too Many Requests, request id: req_1"),
    ("provider.rate", "API Error: 429 {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"}}"),
    ("provider.rate", "API Error: Request rejected (429) · slow down"),
    ("provider.rate", "Request rejected (429) · slow down"),
    ("provider.rate", '{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED"}}'),
    ("provider.rate", "Error: Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM)"),
    ("provider.rate", "Error: RateLimitError: try again in 20s"),
    ("provider.rate", '{"name":"APIError","data":{"message":"slow","statusCode":429}}'),
    ("provider.quota", '{"error":{"type":"insufficient_quota","message":"x"}}'),
    ("provider.quota", "You exceeded your current quota, please check your plan and billing details."),
    ("provider.quota", "ERROR: You've hit your usage limit. Upgrade to Pro or try again at 3:10 PM."),
    ("provider.quota", "You\u2019ve hit your limit · resets 3am (UTC)"),
    ("provider.quota", "Claude AI usage limit reached|1794831567"),
    ("provider.quota", "Credit balance is too low"),
    ("provider.quota", "Quota exceeded for quota metric 'Gemini 2.5 Pro Requests' and limit 'per day'"),
    ("provider.quota", "You have exhausted your capacity on this model. Your quota resets after 2h13m5s."),
    ("provider.quota", "unexpected status 402 Payment Required: no credit left"),
    ("provider.quota", "[API Error: Free allocated quota exceeded.]"),
    ("memory.heap", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"),
    ("memory.heap", "FATAL ERROR: CALL_AND_RETRY_LAST Allocation failed - process out of memory"),
    ("memory.other", 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space'),
    ("memory.other", "MemoryError"),
    ("memory.other", "virtual memory exhausted: Cannot allocate memory"),
    ("memory.other", "fork: Cannot allocate memory"),
    ("memory.other", "memory allocation of 1073741824 bytes failed"),
    ("memory.killed", "Killed"),
    ("memory.killed", "build.sh: line 3:  4242 Killed                  npm run build"),
    ("memory.killed", "zsh: killed     npm run build"),
    ("memory.killed", "Out of memory: Killed process 4242 (node) total-vm:11111kB"),
    ("memory.killed", "node invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
    ("memory.killed", "    Reason: OOMKilled"),
    ("memory.killed", "ERROR: process did not complete successfully: exit code: 137"),
    ("memory.killed", "(signal: 9, SIGKILL: kill)"),
    ("memory.killed", "npm error command was killed with SIGKILL (Forced termination): node x.js"),
    ("memory.killed", "c++: fatal error: Killed signal terminated program cc1plus"),
    ("files.open", "Error: EMFILE: too many open files, open '/srv/ws/a'"),
    ("files.open", "OSError: [Errno 24] Too many open files: 'a'"),
    ("files.open", "ENFILE: file table overflow"),
    ("watches.full", "Error: ENOSPC: System limit for number of file watchers reached, watch '/srv/ws'"),
    ("watches.full", "Error: ENOSPC: no space left on device, watch '/srv/ws'"),
    ("watches.full", "tail: inotify cannot be used: No space left on device"),
    ("watches.full", "OS file watch limit reached."),
    ("watches.full", "inotify watch limit reached: 8192"),
    ("disk.full", "cp: error writing 'b': No space left on device"),
    ("disk.full", "npm error code ENOSPC"),
    ("disk.full", "cp: error writing 'b': Disk quota exceeded"),
    ("port.used", "Error: listen EADDRINUSE: address already in use :::3000"),
    ("port.used", "OSError: [Errno 98] Address already in use"),
    ("port.used", "Bind for 0.0.0.0:80 failed: port is already allocated"),
    ("port.used", "Port 8000 is in use by another program."),
    ("ssh.key", "git@github.com: Permission denied (publickey)."),
    ("ssh.key", "user@host: Permission denied (publickey,password)."),
    ("ssh.host", "Host key verification failed."),
    ("ssh.host", "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @"),
    ("python.managed", "error: externally-managed-environment"),
    ("python.managed", "x This environment is externally managed"),
    ("proxy.auth", "HTTP/1.1 407 Proxy Authentication Required"),
    ("proxy.auth", "curl: (56) CONNECT tunnel failed, response 407"),
    ("proxy.auth", "npm error tunneling socket could not be established, statusCode=407"),
    ("proxy.refused", "curl: (5) Could not resolve proxy: proxy.example.com"),
    ("proxy.refused", "proxyconnect tcp: dial tcp 127.0.0.1:3128: connect: connection refused"),
    ("proxy.refused", "ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 503'))"),
    ("proxy.refused", "ProxyError('Unable to connect to proxy', NewConnectionError('x'))"),
    ("proxy.refused", "npm error tunneling socket could not be established, cause=connect"),
    ("proxy.refused", "curl: (56) CONNECT tunnel failed, response 502"),
    ("proxy.refused", "curl: (56) Received HTTP code 502 from proxy after CONNECT"),
    ("proxy.refused", "net::ERR_PROXY_CONNECTION_FAILED"),
    ("proxy.refused", "curl: (56) Proxy CONNECT aborted"),
    ("tls.date", "curl: (60) SSL certificate problem: certificate has expired"),
    ("tls.date", "npm error code CERT_HAS_EXPIRED"),
    ("tls.date", "curl: (60) SSL certificate problem: certificate is not yet valid"),
    ("tls.date", "invalid peer certificate: certificate expired: verification time 1 (UNIX)"),
    ("tls.name", "Error [ERR_TLS_CERT_ALTNAME_INVALID]: Hostname/IP does not match certificate's altnames"),
    ("tls.name", "SSL: no alternative certificate subject name matches target host name 'example.com'"),
    ("tls.name", "tls: x509: certificate is valid for a.example, not b.example"),
    ("tls.name", "certificate verify failed: Hostname mismatch, certificate is not valid for 'example.com'."),
    ("tls.name", 'invalid peer certificate: certificate not valid for name "example.com"; certificate is'),
    ("state.missing", "npm error enoent ENOENT: no such file or directory, mkdir '/home/me/.npm'"),
    (
        "state.missing",
        "npm error Log files were not written due to an error writing to the directory: /home/me/.npm/_logs",
    ),
    ("state.missing", "Error: ENOENT: no such file or directory, mkdir '/home/me/.cache/tool/x'"),
]  # fmt: skip


@every_row(("expected", "text"), TEXTS)
def test_a_text_is_explained_by_its_row_alone(expected: str, text: str) -> None:
    assert [found.id for found in explain(text)] == [expected]
    assert [found.id for found in explain(f"start\r\n\x1b[31m{text}\x1b[0m\nend\n")] == [expected]


@every_row("row", EVERYDAY_ROWS, ids=lambda row: row.id)
def test_every_pattern_has_a_real_text(row: object) -> None:
    known = next(each for each in TABLE if each.id == getattr(row, "id", None))
    texts = [text for id_, text in TEXTS if id_ == known.id]
    for pattern in known.patterns:
        fitting = [text for text in texts if re.search(pattern, text, re.IGNORECASE | re.MULTILINE)]
        assert fitting, pattern
        assert find_needles(pattern), f"this pattern would be tried on every line of every log: {pattern}"


@every_row(("expected", "text"), [row for row in TEXTS if row[0] != "state.missing"])
def test_none_of_them_is_a_denial_with_the_network_on(expected: str, text: str) -> None:
    denial = classify(DenialEvidence(1, text, None, network_off=False, cwd="/ws", backend="namespaces"))
    assert denial is None, expected


@every_row(
    "text",
    [
        "Error: connect ECONNREFUSED 127.0.0.1:5432",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "curl: (7) Failed to connect to localhost port 9 after 0 ms: Couldn't connect to server",
    ],
)
def test_a_refused_connection_is_the_matter_of_the_other_side(text: str) -> None:
    [found] = explain(text)
    assert found.layer == Layer.APP
    assert "--network on" not in found.remedy or "network off needs" in found.remedy


@every_row(
    "text",
    [
        "I killed the server and started it again",
        "Killed 3 mutants of 3",
        "the rate limiter has a limit of 429 tokens",
        "test_quota_is_kept PASSED",
        "wrote proxy settings for 407 hosts",
        "opened too many tabs",
        "line 137: exit code is 13",
        "heap: 12 MB of memory",
    ],
)
def test_ordinary_words_fit_no_row(text: str) -> None:
    assert explain(text) == []
