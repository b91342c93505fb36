"""Texts as the tools really print them; the table below is the specification."""

import errno
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox.reasons.fingerprint_table import BY_ERRNO
from holdfast.sandbox.reasons.fingerprints import (
    MAX_LINE,
    MAX_MATCHES,
    MAX_TEXT,
    TABLE,
    by_errno,
    find_needles,
    match,
)
from tests.support.rows import every_row

SETUP = [
    (
        "userns.enospc",
        "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded"
        " (ENOSPC)",
    ),
    ("userns.enospc", "unshare: unshare failed: No space left on device"),
    (
        "userns.eperm",
        "bwrap: No permissions to create new namespace, likely because the kernel does not allow"
        " non-privileged user namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README.Debian.gz>.",
    ),
    (
        "userns.eperm",
        "bwrap: No permissions to create a new namespace, likely because the kernel does not allow"
        " non-privileged user namespaces. On e.g. debian this can be enabled with"
        " 'sysctl kernel.unprivileged_userns_clone=1'.",
    ),
    ("userns.eperm", "unshare: unshare failed: Operation not permitted"),
    (
        "userns.eperm",
        "Failed to move to new namespace: PID namespaces supported, Network namespace supported, but failed:"
        " errno = Operation not permitted",
    ),
    (
        "userns.einval",
        "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces. "
        " bwrap must be installed setuid on such systems.",
    ),
    ("userns.einval", "unshare: unshare failed: Invalid argument"),
    ("userns.eacces", "bwrap: Creating new namespace failed: Permission denied"),
    ("userns.eacces", "unshare: unshare failed: Permission denied"),
    ("userns.other", "bwrap: Creating new namespace failed: Function not implemented"),
    ("userns.other", "bwrap: Creating new namespace failed: Too many users"),
    ("userns.other", "bwrap: Creating new namespace failed: Operation not permitted"),
    ("userns.other", "unshare: unshare failed: Function not implemented"),
    ("uidmap.eperm", "bwrap: setting up uid map: Operation not permitted"),
    ("uidmap.eperm", "unshare: write failed /proc/self/uid_map: Operation not permitted"),
    ("uidmap.eperm", "newuidmap: write to uid_map failed: Operation not permitted"),
    ("uidmap.eacces", "bwrap: setting up uid map: Permission denied"),
    ("uidmap.eacces", "unshare: cannot open /proc/self/uid_map: Permission denied"),
    ("uidmap.erofs", "bwrap: setting up uid map: Read-only file system"),
    ("uidmap.erofs", "unshare: cannot open /proc/self/uid_map: Read-only file system"),
    ("proc.absent", "bwrap: Can't read /proc/sys/kernel/overflowuid: No such file or directory"),
    ("proc.masked", "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"),
    ("proc.masked", "unshare: mount /proc failed: Operation not permitted"),
    ("lo.newaddr", "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"),
    ("lo.newaddr", "bwrap: loopback: Failed RTM_NEWADDR: No child processes"),
    ("lo.newaddr", "bwrap: loopback: Failed RTM_NEWLINK: Operation not permitted"),
    ("mount.other", "bwrap: Can't bind mount /oldroot/x on /newroot/x: Invalid argument"),
    ("mount.other", "bwrap: Can't create file at /etc/x: Read-only file system"),
    ("chdir.failed", "bwrap: Can't chdir to /x: Permission denied"),
    ("bwrap.arguments", "bwrap: Exceeded maximum number of arguments 9000"),
    ("bwrap.shell", "bwrap: execvp /bin/sh: No such file or directory"),
    ("lo.socket", "bwrap: loopback: Failed to create NETLINK_ROUTE socket: Operation not permitted"),
    ("lo.bind", "bwrap: loopback: Failed to bind NETLINK_ROUTE socket: Operation not permitted"),
    ("lo.bind", "bwrap: loopback: Failed to look up lo: Operation not permitted"),
    ("mount.rootfs", "bwrap: pivot_root: Invalid argument"),
    ("mount.eperm", "bwrap: Failed to make / slave: Operation not permitted"),
    ("mount.eperm", "bwrap: Failed to make / slave: Permission denied"),
    ("mount.eperm", "bwrap: pivot_root: Operation not permitted"),
    ("mount.eperm", "unshare: cannot change root filesystem propagation: Operation not permitted"),
    ("nnp.eperm", "bwrap: prctl(PR_SET_NO_NEW_PRIVS) failed: Operation not permitted"),
    (
        "seccomp.refused",
        "error applying Linux sandbox restrictions: Sandbox(SeccompInstall(Seccomp(Os { code: 1, kind: X",
    ),
    ("landlock.absent", "OSError: landlock_create_ruleset: [Errno 38] Function not implemented"),
    ("landlock.disabled", "landlock_create_ruleset: Operation not supported"),
    ("landlock.refused", "OSError: landlock_create_ruleset: [Errno 1] Operation not permitted"),
    ("caps.unexpected", "bwrap: Unexpected capabilities but not setuid, old file caps config?"),
    ("bwrap.option", "bwrap: Unknown option --argv0"),
    ("bwrap.missing", "sh: 1: bwrap: not found"),
    ("bwrap.missing", "bash: line 1: bwrap: command not found"),
    ("bwrap.missing", "FileNotFoundError: [Errno 2] No such file or directory: 'bwrap'"),
    (
        "bwrap.missing",
        "bubblewrap is unavailable: no system bwrap was found on PATH and no bundled codex-resources/bwrap"
        " binary was found next to the Codex executable",
    ),
    ("bwrap.mkdir", "bwrap: Can't mkdir /srv/repo/.git: Permission denied"),
    ("bwrap.source", "bwrap: Can't find source path /gone: No such file or directory"),
    ("bwrap.exec", "bwrap: execvp codex-linux-sandbox: No such file or directory"),
    (
        "apparmor.userns",
        'audit: type=1400 apparmor="AUDIT" operation="userns_create" class="namespace"'
        ' info="Userns create - transitioning profile" profile="unconfined" target="unprivileged_userns"',
    ),
    (
        "apparmor.userns",
        'audit: apparmor="DENIED" operation="capable" profile="unprivileged_userns" capname="net_admin"',
    ),
    (
        "apparmor.userns",
        'audit: info="User namespace creation restricted" error=-13 profile="unconfined"',
    ),
]

# id, text, the paths it names
FILES: list[tuple[str, str, tuple[str, ...]]] = [
    ("fs.mkdir", "Error: ENOENT: no such file or directory, mkdir '/ro/d/e'", ("/ro/d/e",)),
    ("fs.erofs", "touch: cannot touch '/ro/new': Read-only file system", ("/ro/new",)),
    ("fs.erofs", "mkdir: cannot create directory \u2018../ro/d\u2019: Read-only file system", ("../ro/d",)),
    ("fs.erofs", "touch: cannot touch '../ro/a file': Read-only file system", ("../ro/a file",)),
    ("fs.erofs", 'touch: cannot touch "../ro/it\'s": Read-only file system', ("../ro/it's",)),
    ("fs.erofs", "bash: line 1: ../ro/new: Read-only file system", ("../ro/new",)),
    ("fs.erofs", "zsh:1: read-only file system: /ro/x", ("/ro/x",)),
    ("fs.erofs", "dash: 1: cannot create /ro/x: Read-only file system", ("/ro/x",)),
    (
        "fs.erofs",
        "sed: couldn't open temporary file /ro/sed5Ok7av: Read-only file system",
        ("/ro/sed5Ok7av",),
    ),
    ("fs.erofs", "tar: /ro/a.tar: Cannot open: Read-only file system", ("/ro/a.tar",)),
    ("fs.erofs", "tee: out: Read-only file system", ("out",)),
    ("fs.erofs", "touch: '/ro/new' kann nicht berührt werden: Das Dateisystem ist nur lesbar", ("/ro/new",)),
    (
        "fs.erofs",
        "mkdir: das Verzeichnis „../ro/d“ kann nicht angelegt werden: Das Dateisystem ist nur lesbar",
        ("../ro/d",),
    ),
    (
        "fs.erofs",
        "mkdir: impossible de créer le répertoire « ../ro/d »: Système de fichiers accessible en lecture"
        " seulement",
        ("../ro/d",),
    ),
    (
        "fs.erofs",
        "truncate: impossible d'ouvrir '/ro/file' en écriture: Système de fichiers accessible en lecture"
        " seulement",
        ("/ro/file",),
    ),
    (
        "fs.erofs",
        "tar: /ro/a.tar : open impossible: Système de fichiers accessible en lecture seulement",
        ("/ro/a.tar",),
    ),
    (
        "fs.erofs",
        "touch: no se puede efectuar `touch' sobre '/ro/new': Sistema de ficheros de sólo lectura",
        ("/ro/new",),
    ),
    (
        "fs.erofs",
        "mkdir: no se puede crear el directorio «../ro/d»: Sistema de archivos de solo lectura",
        ("../ro/d",),
    ),
    ("fs.erofs", "OSError: [Errno 30] Read-only file system: '../ro/x y'", ("../ro/x y",)),
    ("fs.erofs", "OSError: [Errno 30] Read-only file system: b'/ro/x'", ("/ro/x",)),
    ("fs.erofs", "Error: EROFS: read-only file system, open '/ro/x'", ("/ro/x",)),
    ("fs.erofs", "open /ro/x: read-only file system", ("/ro/x",)),
    ("fs.erofs", "panic: open ../ro/x y: read-only file system", ("../ro/x y",)),
    (
        "fs.erofs",
        "failed to initialize build cache at /ro/gc: mkdir /ro/gc: read-only file system",
        ("/ro/gc",),
    ),
    (
        "fs.erofs",
        "pkg: go build pkg: copying /tmp/go-build1/b001/exe/a.out: open /ro/x: read-only file system",
        ("/ro/x",),
    ),
    (
        "fs.erofs",
        'Error: Os { code: 30, kind: ReadOnlyFilesystem, message: "Read-only file system" }',
        (),
    ),
    ("fs.erofs", 'error: Read-only file system (os error 30) at path "/ro/tgzbVcUt"', ("/ro/tgzbVcUt",)),
    ("fs.erofs", "java.nio.file.FileSystemException: /ro/x: Read-only file system", ("/ro/x",)),
    ("fs.erofs", "java.io.FileNotFoundException: /ro/x (Read-only file system)", ("/ro/x",)),
    (
        "fs.erofs",
        "x.rb:1:in `initialize': Read-only file system @ rb_sysopen - /ro/x (Errno::EROFS)",
        ("/ro/x",),
    ),
    ("fs.erofs", "cannot open /ro/x: Read-only file system at -e line 1.", ("/ro/x",)),
    ("fs.erofs", "Can't open '/ro/x' for writing: 'Read-only file system' at -e line 1", ("/ro/x",)),
    (
        "fs.erofs",
        "fatal: Unable to create '/ws/.git/index.lock': Read-only file system",
        ("/ws/.git/index.lock",),
    ),
    ("fs.erofs", "error: could not lock config file .git/config: Read-only file system", (".git/config",)),
    (
        "fs.erofs",
        "fatal: cannot lock ref 'refs/tags/x': Unable to create '/ws/.git/x.lock': Read-only file system",
        ("/ws/.git/x.lock",),
    ),
    (
        "fs.erofs",
        "fatal : Impossible de créer '/ws/.git/i.lock' : Système de fichiers accessible en lecture seulement",
        ("/ws/.git/i.lock",),
    ),
    ("fs.erofs", 'Saving key "/ro/k" failed: Read-only file system', ("/ro/k",)),
    ("fs.erofs", "error creating /ro/s (Read-only file system)", ("/ro/s",)),
    ("fs.erofs", "System.IO.IOException: Read-only file system : '/ro/x'", ("/ro/x",)),
    ("fs.eacces", "bash: line 1: cd: /deny: Permission denied", ("/deny",)),
    ("fs.eacces", "find: \u2018/deny\u2019: Keine Berechtigung", ("/deny",)),
    ("fs.eacces", "cat: /deny/x: Permission non accordée", ("/deny/x",)),
    ("fs.eacces", "grep: /etc/shadow: Permiso denegado", ("/etc/shadow",)),
    ("fs.eacces", "PermissionError: [Errno 13] Permission denied: '/deny/n'", ("/deny/n",)),
    ("fs.eacces", "Error: EACCES: permission denied, open '/deny/x'", ("/deny/x",)),
    ("fs.eacces", "java.nio.file.AccessDeniedException: /deny/x", ("/deny/x",)),
    ("fs.eacces", "System.UnauthorizedAccessException: Access to the path '/d/x' is denied.", ("/d/x",)),
    (
        "fs.eacces",
        "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)",
        ("/var/lib/dpkg/lock-frontend",),
    ),
    (
        "fs.eacces",
        "filesystem error: cannot create directories: Permission denied [/deny/a]",
        ("/deny/a",),
    ),
    ("fs.eacces", "mv: cannot move 'a' to '../nn': Permission denied", ("a", "../nn")),
    ("fs.eperm", "chown: changing ownership of '/ro': Operation not permitted", ("/ro",)),
    ("fs.eperm", "Error: EPERM: operation not permitted, chmod '/ro/x'", ("/ro/x",)),
    (
        "fs.eperm",
        "ln: Die harte Verknüpfung 'h' => '/etc/hosts' konnte nicht angelegt werden:"
        " Die Operation ist nicht erlaubt",
        ("h",),
    ),
    (
        "fs.eperm",
        "ln: impossible de créer le lien direct 'h' → '/etc/hosts': Opération non permise",
        ("h",),
    ),
    ("fs.eperm", "ln: fallo al crear el enlace duro 'h' => '/etc/hosts': Operación no permitida", ("h",)),
    ("fs.exdev", "OSError: [Errno 18] Invalid cross-device link: '/ro/f' -> 'g2'", ("/ro/f", "g2")),
    ("fs.exdev", "Error: EXDEV: cross-device link not permitted, rename '/ro/f' -> 'g2'", ("/ro/f", "g2")),
    (
        "fs.exdev",
        "ln: failed to create hard link 'q' => '/ro/file': Invalid cross-device link",
        ("q",),
    ),
    ("fs.ebusy", "rm: cannot remove '.git': Device or resource busy", (".git",)),
    ("fs.ebusy", "mv: cannot move '.git' to 'g2': Device or resource busy", (".git", "g2")),
    (
        "fs.ebusy",
        "mv: das Verschieben von '.git' nach 'g2' ist nicht möglich: Das Gerät oder die Ressource ist belegt",
        (".git", "g2"),
    ),
    (
        "fs.ebusy",
        "mv: impossible de déplacer '.git' vers 'g2': Périphérique ou ressource occupé",
        (".git", "g2"),
    ),
    ("fs.ebusy", "mv: no se puede mover '.git' a 'g2': Dispositivo o recurso ocupado", (".git", "g2")),
    ("fs.ebusy", "Error: EBUSY: resource busy or locked, rename '.git' -> 'g2'", (".git", "g2")),
    ("fs.ebusy", "rename .git g2: device or resource busy", (".git", "g2")),
    ("fs.shape", "mkdir: cannot create directory '.git': File exists", (".git",)),
    ("fs.shape", "FileExistsError: [Errno 17] File exists: '.git'", (".git",)),
    ("fs.shape", "Error: EEXIST: file already exists, mkdir '.git'", (".git",)),
    ("fs.shape", "mkdir .git: file exists", (".git",)),
    ("fs.shape", "java.nio.file.FileAlreadyExistsException: .git", (".git",)),
    ("fs.shape", "bash: line 1: .agents: Is a directory", (".agents",)),
    ("fs.shape", "cat: m/x: Not a directory", ("m/x",)),
    ("fs.shape", "bash: Zeile 1: .agents: Ist ein Verzeichnis", (".agents",)),
    ("fs.shape", "IsADirectoryError: [Errno 21] Is a directory: '.git'", (".git",)),
    ("fs.shape", "Error: ENOTDIR: not a directory, open 'm/x'", ("m/x",)),
    ("fs.hidden", "cat: /home/u/.netrc: No such file or directory", ("/home/u/.netrc",)),
    ("fs.hidden", "sh: 1: ./script: not found", ("./script",)),
    ("fs.hidden", "bash: line 1: node: command not found", ("node",)),
    ("fs.hidden", "bash: line 1: ./script: cannot execute: required file not found", ("./script",)),
    (
        "fs.hidden",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/.netrc'",
        ("/home/u/.netrc",),
    ),
    (
        "tmp",
        "mktemp: failed to create file via template '/tmp/tmp.XXXXXXXXXX': Read-only file system",
        ("/tmp/tmp.XXXXXXXXXX",),
    ),
    (
        "tmp",
        "mktemp: konnte die Datei nicht mittels Schablone „/tmp/tmp.XXXXXXXXXX“ erstellen: Keine"
        " Berechtigung",
        ("/tmp/tmp.XXXXXXXXXX",),
    ),
    (
        "tmp",
        "mktemp: impossible de créer le fichier à partir du modèle « /tmp/tmp.XXXXXXXXXX »: Permission non"
        " accordée",
        ("/tmp/tmp.XXXXXXXXXX",),
    ),
    (
        "tmp",
        "mktemp: fallo al crear el fichero a través de la plantilla «/tmp/tmp.XXXXXXXXXX»: Permiso denegado",
        ("/tmp/tmp.XXXXXXXXXX",),
    ),
    (
        "tmp",
        "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/ws']",
        ("/tmp",),
    ),
    ("sqlite.readonly", "sqlite3.OperationalError: attempt to write a readonly database", ()),
    ("sqlite.readonly", "Error: stepping, attempt to write a readonly database (8)", ()),
    ("sqlite.readonly", "SqliteError: SQLITE_READONLY_DIRECTORY", ()),
    ("sqlite.cantopen", "sqlite3.OperationalError: unable to open database file", ()),
    (
        "sqlite.cantopen",
        'Error: unable to open database "/ro/new.db": unable to open database file',
        ("/ro/new.db",),
    ),
    ("sqlite.cantopen", "Error: SQLITE_CANTOPEN", ()),
    ("pty", "script: failed to create pseudo-terminal: Permission denied", ()),
    ("pty", "OSError: out of pty devices", ()),
]

# id, text, the host it names
HOSTS: list[tuple[str, str, str | None]] = [
    ("net.dns", "curl: (6) Could not resolve host: example.com", "example.com"),
    (
        "net.dns",
        "fatal: unable to access 'https://example.com/x.git/': Could not resolve host: example.com",
        "example.com",
    ),
    (
        "net.dns",
        "  [6] Could not resolve hostname (Could not resolve host: registry.example.com)",
        "registry.example.com",
    ),
    (
        "net.dns",
        "ssh: Could not resolve hostname example.com: Temporary failure in name resolution",
        "example.com",
    ),
    ("net.dns", "wget: unable to resolve host address \u2018example.com\u2019", "example.com"),
    ("net.dns", "wget: Host-Adresse »example.com« kann nicht aufgelöst werden", "example.com"),
    (
        "net.dns",
        "wget\u00a0: impossible de résoudre l\u2019adresse de l\u2019hôte «\u00a0example.com\u00a0»",
        "example.com",
    ),
    ("net.dns", "wget: no se pudo resolver la dirección del equipo «example.com»", "example.com"),
    (
        "net.dns",
        "Resolving example.com (example.com)... failed: Temporary failure in name resolution.",
        "example.com",
    ),
    ("net.dns", "bash: line 1: example.com: Temporary failure in name resolution", "example.com"),
    ("net.dns", "bash: Zeile 1: example.com: Temporärer Fehler bei der Namensauflösung", "example.com"),
    ("net.dns", "socket.gaierror: [Errno -3] Temporary failure in name resolution", None),
    ("net.dns", "  [cause]: Error: getaddrinfo EAI_AGAIN example.com", "example.com"),
    ("net.dns", "npm error code EAI_AGAIN", None),
    (
        "net.dns",
        'Get "http://example.com/": dial tcp: lookup example.com on 192.0.2.53:53: dial udp 192.0.2.53:53:'
        " connect: network is unreachable",
        "example.com",
    ),
    (
        "net.dns",
        "urllib3.exceptions.NameResolutionError: <HTTPSConnection object>: Failed to resolve 'example.com'"
        " ([Errno -3] Temporary failure in name resolution)",
        "example.com",
    ),
    (
        "net.dns",
        'psql: error: could not translate host name "db.example" to address: Temporary failure in name'
        " resolution",
        "db.example",
    ),
    (
        "net.dns",
        "Could not connect to 'example.com:80': Temporary failure in name resolution",
        "example.com",
    ),
    (
        "net.dns",
        "Failed to open TCP connection to example.com:80 (getaddrinfo: Temporary failure in name resolution)",
        "example.com",
    ),
    ("net.dns", "java.net.UnknownHostException: example.com", "example.com"),
    ("net.dns", "IO::Socket::INET: Bad hostname 'example.com:80' at -e line 1.", "example.com"),
    (
        "net.dns",
        "W: Failed to fetch http://deb.example/dists/x  Temporary failure resolving 'deb.example'",
        "deb.example",
    ),
    ("net.noname", "Error: getaddrinfo ENOTFOUND example.com", "example.com"),
    (
        "net.noname",
        "ssh: Could not resolve hostname nohost.example: Name or service not known",
        "nohost.example",
    ),
    (
        "net.noname",
        'psql: error: could not translate host name "db.example" to address: Name or service not known',
        "db.example",
    ),
    ("net.noname", "socket.gaierror: [Errno -2] Name or service not known", None),
    ("net.noname", "failed to lookup address information: Name does not resolve", None),
    ("net.unreachable", "ssh: connect to host 192.0.2.1 port 22: Network is unreachable", "192.0.2.1"),
    ("net.unreachable", "Error: connect ENETUNREACH 192.0.2.1:80 - Local (0.0.0.0:0)", "192.0.2.1"),
    ("net.unreachable", "Error: connect ENETUNREACH 2001:db8::1:443 - Local (:::0)", "2001:db8::1"),
    ("net.unreachable", "dial tcp 192.0.2.1:80: connect: network is unreachable", "192.0.2.1"),
    ("net.unreachable", "dial tcp [2001:db8::1]:80: connect: network is unreachable", "2001:db8::1"),
    ("net.unreachable", "OSError: [Errno 101] Network is unreachable", None),
    ("net.unreachable", "fehlgeschlagen: Das Netzwerk ist nicht erreichbar.", None),
    ("net.unreachable", "bash: connect: Le réseau n'est pas accessible", None),
    ("net.unreachable", "bash: línea 1: /dev/tcp/192.0.2.1/80: La red es inaccesible", "192.0.2.1"),
    ("net.unreachable", "java.net.SocketException: Network is unreachable", None),
    ("net.socket", "bash: socket: Operation not permitted", None),
    ("net.socket", "Error: connect EPERM 192.0.2.1:80 - Local (undefined:undefined)", "192.0.2.1"),
    ("net.socket", "Error: listen EPERM: operation not permitted 127.0.0.1", "127.0.0.1"),
    ("net.socket", "dial tcp 192.0.2.1:80: socket: operation not permitted", "192.0.2.1"),
    (
        "net.socket",
        'psql: error: connection to server at "192.0.2.1", port 5432 failed: could not create socket:'
        " Operation not permitted",
        "192.0.2.1",
    ),
    ("net.socket", "could not create socket: Operation not permitted", None),
    ("net.socket", "java.net.SocketException: Operation not permitted", None),
    ("net.socket", "failed: Operation not permitted.", None),
    ("net.socket", "urllib.error.URLError: <urlopen error [Errno 1] Operation not permitted>", None),
    ("net.socket", "<x>: Failed to establish a new connection: [Errno 1] Operation not permitted", None),
    (
        "net.connect",
        "curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server",
        "192.0.2.1",
    ),
    ("net.connect", "ssh: connect to host 192.0.2.1 port 22: failure", "192.0.2.1"),
    ("net.refused", "ssh: connect to host 192.0.2.1 port 22: Connection refused", "192.0.2.1"),
    ("net.refused", "Error: connect ECONNREFUSED 127.0.0.1:5432", "127.0.0.1"),
    ("net.refused", "dial tcp 127.0.0.1:80: connect: connection refused", "127.0.0.1"),
    (
        "net.refused",
        'connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused',
        "localhost",
    ),
    ("net.refused", "ConnectionRefusedError: [Errno 111] Connection refused", None),
    (
        "net.pip",
        "ERROR: Could not find a version that satisfies the requirement x (from versions: none)",
        None,
    ),
    ("net.pip", "ERROR: No matching distribution found for x", None),
]

OTHERS = [
    ("ptrace", "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted"),
    ("ptrace", "strace: test_ptrace_get_syscall_info: PTRACE_TRACEME: Operation not permitted"),
    ("ptrace", "warning: ptrace: Operation not permitted"),
    ("nolink", "Cannot open netlink socket: Operation not permitted"),
    ("mount.call", "mount: /mnt: permission denied."),
    ("mount.call", "mount: /mnt: must be superuser to use mount."),
    ("perf", "No permission to enable task-clock event."),
    ("sigsys", "bash: line 1: 4242 Bad system call         (core dumped) ./a.out"),
    ("sigsys", "Ungültiger Betriebssystemaufruf"),
    ("sigsys", "Appel système erroné"),
    ("sigsys", "Llamada al sistema errónea"),
    (
        "shm",
        '  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__\n'
        "    sl = self._semlock = _multiprocessing.SemLock(\n"
        "                         ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "PermissionError: [Errno 13] Permission denied",
    ),
    (
        "net.socket",
        '  File "/usr/lib/python3.11/socket.py", line 232, in __init__\n'
        "    _socket.socket.__init__(self, family, type, proto, fileno)\n"
        "PermissionError: [Errno 1] Operation not permitted",
    ),
    ("net.unix", "dial unix /var/run/docker.sock: socket: operation not permitted"),
    ("net.unix", "error connecting to /tmp/tmux-0/default (Permission denied)"),
    ("net.unix", "Error: connect EACCES /run/x/s.sock"),
    (
        "net.unix",
        'connection to server on socket "/run/postgresql/.s.PGSQL.5432" failed: Permission denied',
    ),
    (
        "net.unix",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
    ),
    ("net.agent", "Error connecting to agent: Permission denied"),
    ("net.agent", "Could not open a connection to your authentication agent."),
]

ALL = [*SETUP, *OTHERS, *((i, t) for i, t, _ in FILES), *((i, t) for i, t, _ in HOSTS)]
ONLY_BY_ERRNO = {
    *("netns.refused", "mount.enosys", "mount.source", "landlock.layers", "caps.refused"),
    *("landlock.grants", "exec.missing", "exec.denied", "exec.failed"),
    *("bwrap.setuid", "bwrap.view", "bwrap.arg0", "bwrap.other"),
}


@every_row(("expected", "text"), ALL)
def test_a_text_is_owned_by_its_row_alone(expected: str, text: str) -> None:
    assert [found.fingerprint.id for found in match(text)] == [expected]
    assert [found.fingerprint.id for found in match(f"start\n\x1b[31m{text}\x1b[0m\r\nend\n")] == [expected]


@every_row("fingerprint", TABLE, ids=lambda fingerprint: fingerprint.id)
def test_every_pattern_has_a_real_text(fingerprint: object) -> None:
    row = next(row for row in TABLE if row is fingerprint)
    assert bool(row.patterns) != (row.id in ONLY_BY_ERRNO)
    texts = [text for expected, text in ALL if expected == row.id]
    for pattern in row.patterns:
        fitting = [text for text in texts if re.search(pattern, text, re.IGNORECASE | re.MULTILINE)]
        assert fitting, pattern
        words = find_needles(pattern)
        assert all(not words or any(word in text.lower() for word in words) for text in fitting), words


def test_nearly_every_pattern_is_spared_where_its_words_are_missing() -> None:
    patterns = [pattern for row in TABLE for pattern in row.patterns]
    assert sum(not find_needles(pattern) for pattern in patterns) < len(patterns) / 20


@every_row(("name", "text", "paths"), FILES)
def test_the_refused_path_is_read_from_the_text(name: str, text: str, paths: tuple[str, ...]) -> None:
    assert [found.paths for found in match(text)] == [paths]


@every_row(("name", "text", "host"), HOSTS)
def test_the_unreachable_host_is_read_from_the_text(name: str, text: str, host: str | None) -> None:
    assert [found.host for found in match(text)] == [host]


def test_a_unix_socket_is_named_by_its_path() -> None:
    (found,) = match("dial unix /var/run/docker.sock: socket: operation not permitted")
    assert (found.paths, found.host) == (("/var/run/docker.sock",), None)


def test_a_chain_of_causes_names_the_path_some_lines_above() -> None:
    chain = (
        "error: failed to create package `c` at `/ro/c`\n\n"
        "Caused by:\n  failed to create directory `/ro/c`\n\n"
        "Caused by:\n  Read-only file system (os error 30)\n"
    )
    (found,) = match(chain)
    assert (found.line, found.paths) == ("Read-only file system (os error 30)", ("/ro/c",))


@every_row(
    "text",
    [
        "git@host.example: Permission denied (publickey).",
        "Permission denied, please try again.",
        "ERROR:  permission denied for table users",
        "error: permission denied for schema public",
        "skipped: read-only file system tests",
        "cp: cannot stat '/home/u/permission denied/x': Input/output error",
        "cp: cannot stat 'operation not permitted': Input/output error",
        "see docs/EACCES.md and tests/EROFS/x for the read-only file system page",
        "2 tests failed in sandbox/landlock/test_seccomp.py",
        "the requested URL returned error: 403",
        "it failed because of a Read-only file system there",
        "AssertionError: expected 'busy' but got 'exists'",
        "error[E0425]: cannot find value `x` in this scope",
        "make: *** [Makefile:2: all] Error 1",
        "",
    ],
)
def test_ordinary_words_fit_no_row(text: str) -> None:
    assert match(text) == []


@every_row(
    ("stage", "code", "expected"),
    [
        ("userns", errno.ENOSPC, "userns.enospc"),
        ("userns", errno.EPERM, "userns.eperm"),
        ("userns", errno.EINVAL, "userns.einval"),
        ("userns", errno.EACCES, "userns.eacces"),
        ("userns", errno.ENOSYS, "userns.other"),
        ("mountns", errno.ENOSPC, "userns.enospc"),
        ("uidmap", errno.EPERM, "uidmap.eperm"),
        ("uidmap", errno.EACCES, "uidmap.eacces"),
        ("uidmap", errno.EROFS, "uidmap.erofs"),
        ("uidmap", errno.ENOENT, "proc.absent"),
        ("mount", errno.EACCES, "mount.eperm"),
        ("mount", errno.ENOSYS, "mount.enosys"),
        ("writable", errno.ENOENT, "mount.source"),
        ("mask-file", errno.EINVAL, "mount.other"),
        ("proc", errno.EPERM, "proc.masked"),
        ("netns", errno.EPERM, "netns.refused"),
        ("loopback", errno.ECHILD, "lo.newaddr"),
        ("nnp", errno.EPERM, "nnp.eperm"),
        ("seccomp", errno.ENOSYS, "seccomp.refused"),
        ("landlock", errno.ENOSYS, "landlock.absent"),
        ("landlock", errno.EOPNOTSUPP, "landlock.disabled"),
        ("landlock", errno.E2BIG, "landlock.layers"),
        ("grants", errno.E2BIG, "landlock.grants"),
        ("landlock", errno.EPERM, "landlock.refused"),
        ("capabilities", errno.EPERM, "caps.refused"),
        ("cwd", errno.ENOENT, "chdir.failed"),
        ("exec", errno.ENOENT, "exec.missing"),
        ("exec", errno.EACCES, "exec.denied"),
        ("exec", errno.ENOEXEC, "exec.failed"),
        ("bwrap.option", errno.ENOSYS, "bwrap.option"),
        ("bwrap:userns.eperm", errno.EPERM, "userns.eperm"),
        ("bwrap:bwrap.view", errno.ESTALE, "bwrap.view"),
    ],
)
def test_a_stage_and_its_errno_have_a_fingerprint(stage: str, code: int, expected: str) -> None:
    found = by_errno(stage, code)
    assert found is not None
    assert found.id == expected


def test_every_stage_answers_for_every_errno() -> None:
    assert all(by_errno(stage, code) for stage in BY_ERRNO for code in errno.errorcode)
    assert by_errno("no such stage", errno.EPERM) is None
    assert by_errno("bwrap:no such id", errno.EPERM) is None


@pytest.mark.parametrize("stage", ["bwrap.missing", "bwrap:bwrap.missing"])
def test_a_stage_may_be_a_fingerprint(stage: str) -> None:
    found = by_errno(stage, errno.ENOENT)
    assert found is not None
    assert found.id == "bwrap.missing"


def test_ids_are_unique_and_every_row_advises() -> None:
    assert len({row.id for row in TABLE}) == len(TABLE)
    assert all(row.cause and row.remedy and 0 < row.confidence <= 1 for row in TABLE)


HOSTILE = ["'", "«", "`", "/", "x: ", " '/a: ", "SemLock(\n", 'apparmor="DENIED"', "lookup a", "mount: "]
HOSTILE += ["dial tcp 1", '/socket.py", line 1, in x\n', "`permission denied", ": permission denied", "\x1b["]
HOSTILE += ["'/a' to ", "Caused by:\n `", "AccessDeniedException: ", "bwrap: Can't mkdir ", "\n"]


@pytest.mark.timeout(20)  # each takes a tenth of a second; a quadratic pattern takes minutes
@every_row("piece", HOSTILE)
def test_a_hostile_text_costs_little(piece: str) -> None:
    line = (piece * MAX_LINE)[: MAX_LINE - 40] + ": permission denied\n"
    assert len(match(line * (MAX_TEXT // len(line) + 1))) <= MAX_MATCHES


def test_a_line_without_end_is_cut() -> None:
    assert match("'" * MAX_TEXT + ": permission denied") == []


def test_the_end_of_a_long_text_counts() -> None:
    first, last = "cat: /first: Permission denied\n", "cat: /last: Permission denied\n"
    (found,) = match(first + "." * MAX_TEXT + "\n" + last)
    assert found.paths == ("/last",)


def test_a_flood_is_cut_to_its_last_lines() -> None:
    found = match("".join(f"rm: cannot remove '/ro/{n}': Read-only file system\n" for n in range(1000)))
    assert [row.paths for row in found] == [(f"/ro/{n}",) for n in range(1000 - MAX_MATCHES, 1000)]


@every_row(
    ("pattern", "words"),
    [
        (r"Permission denied", {"permission denied"}),
        (r"no (?:a )?new namespace", {"new namespace"}),
        (r"colou?r of", {"colo"}),
        (r"go+al", {"go"}),
        (r"a{2,3}bcd", {"bcd"}),
        (r"(?:left|right) turn", {" turn"}),
        (r"\b(?:unknown host|no route)", {"unknown host", "no route"}),
        (r"(?:x|)", set()),
        (r"(?:ab)?", set()),
        (r"x(?:longer)*", {"x"}),
        (r"(?:longer)+x", {"longer"}),
        (r"one|two", {"one", "two"}),
        (r"one|\w", set()),
        (r"(?P<path>/[^\s\]]{1,9})\.sock", {".sock"}),
        (r"(?<!word)tail(?=more)", {"tail"}),
        (r"(?<=word)tail(?!more)", {"tail"}),
        (r"[]x]y[^]z]abc", {"abc"}),
        (r'"(?:[^"\\]|\\.)+" end', {'" end'}),
        (r"\[Errno 1\]", {"[errno 1]"}),
        (r"x\xe9 bar \u2019s", {" bar "}),
        (r"^a.b$", {"a"}),
        (r"\S{1,64}", set()),
        (r"", set()),
    ],
)
def test_the_longest_word_that_must_be_there(pattern: str, words: set[str]) -> None:
    assert find_needles(pattern) == words


ATOMS = st.sampled_from(
    ["a", "B", "cd", r"\.", r"\d", "[ab]", ".", "(?:ab|c)", "(?:a)?", "(?P<x>bc)", "b?", "c{0,2}", "a+"]
)


@given(
    st.lists(ATOMS, max_size=6).filter(lambda atoms: atoms.count("(?P<x>bc)") < 2),
    st.text("abcd.B7", max_size=12),
)
def test_a_text_without_the_words_does_not_fit(atoms: list[str], text: str) -> None:
    pattern = "".join(atoms)
    words = find_needles(pattern)
    if words and not any(word in text.lower() for word in words):
        assert re.search(pattern, text, re.IGNORECASE) is None
