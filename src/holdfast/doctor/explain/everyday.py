"""Fingerprints of everyday failures without a sandbox: quotas, memory, ports, keys, proxies. Pure module.

The same rules hold as for the rows of `sandbox/reasons/fingerprint_table.py`. They are about the machine, the
network or an account: none of them is a denial, and none advises a grant.
"""

from typing import Final

from holdfast.sandbox.reasons.fingerprint_table import FingerprintRow, Layer

_STATE: Final = r"/[^'\n]{1,300}?/\.(?:npm|cache|config|local|yarn|pnpm-store|cargo|bun)\b[^'\n]{0,200}"

EVERYDAY_ROWS: Final = (
    FingerprintRow(
        "provider.quota", Layer.PROVIDER, 0.9,
        "the plan or the credit at the model's provider is used up: trying again does not help before it is"
        " renewed",
        "wait until the time the message names, buy more, or use another key or model",
        (
            r"\binsufficient_quota\b",
            r"You exceeded your current quota",
            r"You(?:'|\u2019)ve (?:hit|reached) your (?:usage|session|weekly|5-hour|daily)? ?limit",
            r"Claude (?:AI )?usage limit reached",
            r"credit balance is too low",
            r"(?<!Disk )Quota exceeded\b",
            r"exhausted your (?:daily|capacity|quota)",
            r"unexpected status 402 Payment Required",
            r"free (?:daily|allocated) quota",
        ),
    ),
    FingerprintRow(
        "provider.rate", Layer.PROVIDER, 0.85,
        "the model's provider takes no more requests for now (429): too many at once, or too many tokens a"
        " minute",
        "wait a minute; run fewer workers at once, or ask the provider for a higher limit",
        (
            r"\b429\b[ :,(\"]{1,3}Too Many Requests",
            r"\bAPI Error: (?:Request rejected \()?429\b",
            r"Request rejected \(429\)",
            r"\brate_limit_(?:error|exceeded)\b",
            r"\bRESOURCE_EXHAUSTED\b",
            r"Rate limit (?:reached|exceeded)\b",
            r"\bRateLimitError\b",
            r"\b(?:HTTP|status(?: ?code)?)\"?[:= ]{1,2}429\b",
        ),
    ),
    FingerprintRow(
        "memory.heap", Layer.APP, 0.95,
        "node reached the limit of its own heap, which is set when it starts: the machine may have more",
        "export NODE_OPTIONS=--max-old-space-size=8192 (MiB), if the machine has that much",
        (
            r"JavaScript heap out of memory",
            r"FATAL ERROR: [^\n]{1,120}Allocation failed",
        ),
    ),
    FingerprintRow(
        "memory.other", Layer.APP, 0.85,
        "a program asked for more memory than it may have",
        "give it less to do at once or a higher limit (holdfast exec --memory); free -h shows what there is",
        (
            r"java\.lang\.OutOfMemoryError",
            r"^MemoryError\b",
            r"virtual memory exhausted",
            r"[cC]annot allocate memory\b",
            r"memory allocation of \d{1,20} bytes failed",
        ),
    ),
    FingerprintRow(
        "memory.killed", Layer.HOST_KERNEL, 0.7,
        "something ended the program with SIGKILL: mostly the kernel because the machine or the container is"
        " out of memory, otherwise a limit or a person",
        "sudo dmesg | grep -i 'killed process'; then give it less to do at once, or more memory",
        (
            r"^Killed[ \t]{0,4}$",
            r": line \d{1,9}: {1,8}\d{1,9} Killed\b",
            r"^zsh: killed\b",
            r"Out of memory: Killed process \d",
            r"\boom-kill(?:er)?\b",
            r"\bOOMKilled\b",
            r"exit(?:ed)? (?:with )?(?:code|status)[: ]{1,2}137\b",
            r"signal: 9, SIGKILL",
            r"was killed with SIGKILL",
            r"Killed signal terminated program \w{1,40}",
        ),
    ),
    FingerprintRow(
        "files.open", Layer.HOST_KERNEL, 0.9,
        "a process has as many files open as it may (EMFILE), or the machine has (ENFILE)",
        "ulimit -n 65536 in the shell that starts it, or holdfast exec --open-files 65536",
        (r"\bE[MN]FILE\b", r"Too many open files"),
    ),
    FingerprintRow(
        "watches.full", Layer.HOST_KERNEL, 0.95,
        "the kernel's number of watched files of this user is used up; the disk is not full",
        "sudo sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024",
        (
            r"System limit for number of file watchers reached",
            r"ENOSPC: no space left on device, watch\b",
            r"(?:inotify_add_watch|inotify)[^\n]{0,80}: No space left on device",
            r"OS file watch limit reached",
            r"inotify watch limit reached",
        ),
    ),
    FingerprintRow(
        "disk.full", Layer.HOST_KERNEL, 0.9,
        "the disk, its quota or its inodes are used up",
        "df -h . && df -i . (space and inodes), and remove something",
        (r"(?<!unshare failed): No space left on device\b", r"\bENOSPC\b(?!\))", r"Disk quota exceeded"),
    ),
    FingerprintRow(
        "port.used", Layer.APP, 0.95,
        "another program listens on that port already",
        "ss -ltnp 'sport = :PORT' shows which one; end it, or take another port",
        (r"\bEADDRINUSE\b", r"Address already in use", r"port is already allocated",
         r"Port \d{1,5} is (?:already )?in use"),
    ),
    FingerprintRow(
        "ssh.key", Layer.APP, 0.9,
        "the other side takes none of the keys that ssh has here; a confined command has none, since ~/.ssh"
        " is withheld from it",
        "ssh -T git@HOST outside shows whether a key is accepted; for one command: holdfast exec"
        ' --allow-socket "$SSH_AUTH_SOCK" -- COMMAND lends the agent and no key',
        (r"Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)[\w,-]{0,120}\)",),
    ),
    FingerprintRow(
        "ssh.host", Layer.APP, 0.9,
        "ssh does not know the key of the other side, or it is another one than before",
        "ssh-keygen -F HOST shows the known one; add it with ssh-keyscan after comparing its fingerprint",
        (r"Host key verification failed", r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
    ),
    FingerprintRow(
        "python.managed", Layer.APP, 0.95,
        "this Python belongs to the system (PEP 668), and pip does not install into it",
        "python3 -m venv .venv && .venv/bin/pip install …, or pipx install … for a program",
        (r"externally-managed-environment", r"This environment is externally managed"),
    ),
    FingerprintRow(
        "proxy.auth", Layer.APP, 0.9,
        "the proxy wants a name and a password (407), or refuses them",
        "check HTTPS_PROXY (env | grep -i _proxy): http://NAME:PASSWORD@HOST:PORT, and the NO_PROXY list",
        (
            r"\b407\b[ :]{1,2}Proxy Authentication Required",
            r"(?:HTTP code|response|statusCode=|status code) ?407\b",
        ),
    ),
    FingerprintRow(
        "proxy.refused", Layer.APP, 0.85,
        "the way leads over a proxy (HTTPS_PROXY), and that proxy is not there or does not lead on",
        "env | grep -i _proxy; correct or unset the variable, or name the host in NO_PROXY",
        (
            r"Could not resolve proxy\b",
            r"\bproxyconnect tcp\b",
            r"Cannot connect to proxy",
            r"Unable to connect to proxy",
            r"tunneling socket could not be established",
            r"CONNECT tunnel failed, response \d",
            r"Received HTTP code \d{3} from proxy after CONNECT",
            r"\bERR_PROXY_CONNECTION_FAILED\b",
            r"Proxy CONNECT aborted",
        ),
    ),
    FingerprintRow(
        "tls.date", Layer.APP, 0.9,
        "the certificate of the other side has run out, or the clock of this machine is wrong",
        "date; if that is right, the operator of the other side has to renew it",
        (
            r"certificate has expired(?: or is not yet valid)?",
            r"\bCERT_(?:HAS_EXPIRED|NOT_YET_VALID)\b",
            r"certificate is not yet valid",
            r"certificate expired",
        ),
    ),
    FingerprintRow(
        "tls.name", Layer.APP, 0.9,
        "the certificate is for another name than the one that was asked for: a wrong address, or somebody in"
        " between",
        "check the address; openssl s_client -connect HOST:443 -servername HOST shows the names",
        (
            r"\bERR_TLS_CERT_ALTNAME_INVALID\b",
            r"no alternative certificate subject name matches",
            r"certificate is valid for [^\n]{1,200}, not ",
            r"Hostname mismatch, certificate is not valid for",
            r"certificate not valid for name",
        ),
    ),
    FingerprintRow(
        "state.missing", Layer.FILESYSTEM, 0.75,
        "a tool keeps its state in the home, that directory does not exist yet, and the sandbox does not let"
        " it be made",
        "holdfast exec --allow-write ~/.npm -- COMMAND with the directory that is named: it is made",
        (
            rf"ENOENT: no such file or directory, mkdir '(?P<path>{_STATE})'",
            rf"Log files were not written due to an error writing to the directory: (?P<path>{_STATE})",
        ),
    ),
)  # fmt: skip
