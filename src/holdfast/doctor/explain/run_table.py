"""Fingerprints of what goes wrong while an agent works: git, network, its model, silence. Pure module.

The same rules hold as for the rows of `sandbox/fingerprint_table.py`. A row without a pattern is a symptom
that leaves no text; it is there to be read.
"""

from typing import Final

from holdfast.sandbox.reasons.fingerprint_table import FingerprintRow, Layer

_REFUSED: Final = r"(?:Read-only file system|Operation not permitted|Permission denied)"

RUN_ROWS: Final = (
    FingerprintRow(
        "git.worktree", Layer.VCS, 0.95,
        "the repository of a linked worktree is protected in the sandbox, also when .git itself is writable",
        "holdfast config codex apply --writes git (grants .git and .git/worktrees/NAME, not the hooks)",
        (rf"(?P<path>/[^'\n]{{1,300}}/\.git/worktrees/[^'\n]{{1,200}})': {_REFUSED}",),
    ),
    FingerprintRow(
        "git.protected", Layer.VCS, 0.9,
        "the sandbox protects .git, so nothing can be added, committed or fetched",
        "holdfast config codex apply --writes git, or let whoever supervises the agent commit",
        (
            rf"Unable to create '(?P<path>[^'\n]{{1,400}}\.git/[^'\n]{{1,100}}\.lock)': {_REFUSED}",
            rf"could not lock config file (?P<path>[^\n:]{{0,300}}\.git/config): {_REFUSED}",
            rf"cannot open '?(?P<path>[^'\n:]{{0,300}}\.git/FETCH_HEAD)'?: {_REFUSED}",
            rf"cannot copy '[^'\n]{{1,300}}' to '(?P<path>[^'\n]{{1,300}}\.git/[^'\n]{{1,100}})': {_REFUSED}",
        ),
    ),
    FingerprintRow(
        "cache.readonly", Layer.FILESYSTEM, 0.9,
        "a package manager wants to write its cache, which is outside the writable roots",
        "export XDG_CACHE_HOME=$PWD/.cache npm_config_cache=$PWD/.cache/npm PIP_CACHE_DIR=$PWD/.cache/pip",
        (
            r"npm (?:ERR!|error) (?:code )?(?:E?ROFS)\b",
            r"(?P<path>/\S{1,300}) isn't writable",
            r"directory '(?P<path>[^'\n]{1,300})' or its parent directory is not owned or is not writable",
        ),
    ),
    FingerprintRow(
        "codex.read-only", Layer.POLICY, 0.95,
        "the patch tool was refused: the thread is in read-only mode, and nobody can be asked",
        "codex exec -s workspace-write …, if something is to be written",
        (r"writing is blocked by read-only sandbox", r"writing outside of the project; rejected"),
    ),
    FingerprintRow(
        "proxy.allowlist", Layer.POLICY, 0.95,
        "the host is not on the list of hosts that the agent may reach",
        "holdfast config codex apply --network HOST, if it may",
        (
            r'Network access to \\{0,2}"(?P<host>[\w.:-]{1,253})\\{0,2}" was blocked',
            r"Domain not in allowlist",
            r"Sandbox policy blocks local/private network addresses",
        ),
    ),
    FingerprintRow(
        "docker.socket", Layer.POLICY, 0.8,
        "the socket of the Docker daemon is out of reach from the sandbox, as it should be, or no daemon"
        " runs",
        "run docker outside the agent; whoever has the socket is root on the host, so never grant it",
        (
            r"Cannot connect to the Docker daemon",
            r"trying to connect to the (?:Docker daemon socket|docker API) at",
        ),
    ),
    FingerprintRow(
        "unix-socket", Layer.POLICY, 0.7,
        "a connection to a unix socket is refused by the sandbox; on macOS a permission profile that lists"
        " the"
        " socket is not obeyed",
        "codex sandbox --allow-unix-socket PATH -- COMMAND shows whether it is that",
        (
            r"connect (?:EPERM|EACCES) (?P<path>/[^\n]{1,300}?\.sock)\b",
            r"dial unix (?P<path>/[^\s:]{1,300}): connect: (?:operation not permitted|permission denied)",
        ),
    ),
    FingerprintRow(
        "tls.authority", Layer.APP, 0.85,
        "the certificate of the other side is signed by nobody this program trusts: a company's proxy, a"
        " missing"
        " ca-certificates package, or macOS with Codex before 0.56",
        "export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt; sudo apt-get install ca-certificates",
        (
            r"x509: certificate signed by unknown authority",
            r"unable to get (?:local )?issuer certificate",
            r"self[- ]signed certificate(?: in certificate chain)?",
            r"\bCERTIFICATE_VERIFY_FAILED",
            r"x509: OSStatus -26276",
        ),
    ),
    FingerprintRow(
        "net.timeout", Layer.APP, 0.7,
        "somebody drops the packets: a firewall or the network policy around the container, not the agent's"
        " sandbox, which refuses at once",
        "curl -m 5 -v https://HOST from outside the agent, on the same host",
        (r"\bi/o timeout\b", r"\bETIMEDOUT\b", r": Connection timed out\b"),
    ),
    FingerprintRow(
        "provider.waiting", Layer.PROVIDER, 0.95,
        "the model's provider cannot be reached, and Codex waits for ever: it does so since 0.148",
        "codex features disable unbounded_connection_retries, and check the way to the provider",
        (r"Reconnecting\.\.\. waiting for network",),
    ),
    FingerprintRow(
        "provider.retry", Layer.PROVIDER, 0.4,
        "a connection to the model's provider broke and is tried again: the turn goes on, nothing has"
        " failed yet",
        "nothing, unless it comes again and again",
        (r"Reconnecting\.\.\. \d{1,4}/\d{1,4}",),
    ),
    FingerprintRow(
        "provider.unreachable", Layer.PROVIDER, 0.8,
        "the model's provider cannot be reached",
        "curl -sS -o /dev/null -w '%{http_code}\\n' https://api.openai.com/v1/models (401 means: reachable)",
        (
            r"Connection failed: error sending request",
            r"stream disconnected before completion",
            r"failed to connect to Responses WebSocket",
        ),
    ),
    FingerprintRow(
        "agent.no-commands", Layer.OBSERVABILITY, 0.6,
        "the agent says it cannot run anything, and its stream has no command: the sandbox dies before the"
        " command starts, Codex leaves such calls out of the stream and ends with 0",
        "holdfast doctor assert (runs a command through the agent's own sandbox and shows what it says)",
        (
            r"\"text\": ?\"[^\n]{0,400}?(?:can(?:no|['\u2019])t|could ?n[o'\u2019]t|unable to|not able to)"
            r" (?:run|execute|start)\b",
        ),
        beside=(r"\"type\": ?\"turn\.completed\"",),
        unless=(r"\"type\": ?\"command_execution\"",),
    ),
    FingerprintRow(
        "agent.idle", Layer.OBSERVABILITY, 0.5,
        "agents take work and produce nothing, and look idle: every sandboxed command may die at its start",
        "holdfast doctor assert --wait in the start script, so that such a machine takes no work",
    ),
    FingerprintRow(
        "thread.read-only", Layer.OBSERVABILITY, 0.5,
        "one command has network and the same one after `true;` has not (macOS, app server): the thread was"
        " started read-only, whatever config.toml says",
        'pass sandbox: "workspace-write" in thread/start, and compare the answer',
    ),
)  # fmt: skip
