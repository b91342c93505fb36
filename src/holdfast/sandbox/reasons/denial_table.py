"""Fingerprints of denials that a command sees, and the wordings of programs for them. Pure module.

The same rules apply as for the rows of `fingerprint_table`.
"""

from typing import Final, NamedTuple

from holdfast.sandbox.reasons.fingerprint_table import FingerprintRow, Layer


class Wording(NamedTuple):
    """The wordings of an errno in programs; the C library's texts in English, German, French and Spanish."""

    number: int
    texts: tuple[str, ...]


WORDINGS: Final = {
    "EPERM": Wording(
        1,
        (
            "operation not permitted",
            "(?:die )?operation (?:ist )?nicht erlaubt",
            "opération non permise",
            "operación no permitida",
        ),
    ),
    "ENOENT": Wording(
        2,
        (
            "no such file or directory",
            "datei oder verzeichnis nicht gefunden",
            "aucun fichier ou dossier de ce (?:type|nom)",
            "no existe el (?:fichero|archivo) o el directorio",
        ),
    ),
    "EACCES": Wording(
        13, ("permission denied", "keine berechtigung", "permission non accordée", "permiso denegado")
    ),
    "EBUSY": Wording(
        16,
        (
            "device or resource busy",
            "resource busy or locked",
            "das gerät oder die ressource ist belegt",
            "périphérique ou ressource occupée?",
            "dispositivo o recurso ocupado",
        ),
    ),
    "EEXIST": Wording(
        17,
        (
            "file (?:already )?exists",
            "die datei existiert bereits",
            "le fichier existe",
            "el (?:fichero|archivo) ya existe",
        ),
    ),
    "EXDEV": Wording(
        18,
        (
            "(?:invalid )?cross-device link(?: not permitted)?",
            "ungültiger link über gerätegrenzen hinweg",
            "lien physique inter-périphérique invalide",
            "enlace cruzado entre dispositivos no permitido",
        ),
    ),
    "ENOTDIR": Wording(
        20, ("not a directory", "ist kein verzeichnis", "n'est pas un dossier", "no es un directorio")
    ),
    "EISDIR": Wording(
        21,
        (
            "is a directory",
            "illegal operation on a directory",
            "ist ein verzeichnis",
            "est un dossier",
            "es un directorio",
        ),
    ),
    "EROFS": Wording(
        30,
        (
            "read-only file ?system",
            "das dateisystem ist nur lesbar",
            "système de fichiers accessible en lecture seulement",
            "sistema de (?:ficheros|archivos) de s[óo]lo lectura",
        ),
    ),
    "ENETUNREACH": Wording(
        101,
        (
            "network is unreachable",
            "das netzwerk ist nicht erreichbar",
            "le réseau n'est pas accessible",
            "la red es inaccesible",
        ),
    ),
    "ECONNREFUSED": Wording(
        111,
        ("connection refused", "verbindungsaufbau abgelehnt", "connexion refusée", "conexión rehusada"),
    ),
}

_NAME: Final = r"(?P<host>[\w.-]{1,253})"
_ADDRESS: Final = r"(?P<host>\[[\da-f:.]{2,45}\]|[\w.-]{1,253}|[\da-f:.]{2,45})"
_TEMPLATE: Final = r"\W{1,2}?(?P<path>[/.\w][^'\u2019“»\n]{0,400}?)[ \u00a0]?['\u2019“»]"
_TEMPORARILY: Final = (  # EAI_AGAIN: no name server could be asked
    "temporary failure in name resolution"
    "|temporärer fehler bei der namensauflösung"
    "|échec temporaire dans la résolution du nom"
    "|fallo temporal en la resolución del nombre"
)
_UNKNOWN_NAMES: Final = (  # EAI_NONAME: a server answered that there is no such name
    "name or service not known"
    "|name does not resolve"
    "|der name oder der dienst ist nicht bekannt"
    "|nom ou service inconnu"
    "|nombre o servicio desconocido"
)

COMMAND_ROWS: Final = (
    FingerprintRow(
        "shm", Layer.FILESYSTEM, 0.8,
        "shared memory (/dev/shm) is not writable",
        "allow writing /dev/shm",
        (r"SemLock\([^\n]{0,160}\n(?:[^\n]{0,160}\n){0,2}?PermissionError: \[Errno 13\]",),
        path="/dev/shm",  # noqa: S108 - a name in a message, nothing is created
    ),
    FingerprintRow(
        "pty", Layer.FILESYSTEM, 0.8,
        "no pseudo-terminal can be opened (/dev/ptmx, /dev/pts)",
        "allow writing /dev/ptmx and /dev/pts",
        (r"failed to (?:openpty|create pseudo-terminal): ", r"OSError: out of pty devices"),
        path="/dev/ptmx",
    ),
    FingerprintRow(
        "tmp", Layer.FILESYSTEM, 0.9,
        "the directory for temporary files is not writable",
        "set TMPDIR to a writable directory, or allow writing this one",
        (
            rf"failed to create (?:file|directory) via template {_TEMPLATE}",
            rf"mktemp: konnte (?:die datei|das verzeichnis) nicht mittels schablone {_TEMPLATE}",
            rf"mktemp: impossible de créer le (?:fichier|répertoire) à partir du modèle {_TEMPLATE}",
            rf"mktemp: fallo al crear el (?:fichero|directorio) a través de la plantilla {_TEMPLATE}",
            r"No usable temporary directory found in \['(?P<path>[^'\n]{1,400})'",
        ),
    ),
    FingerprintRow(
        "sqlite.readonly", Layer.FILESYSTEM, 0.85,
        "SQLite may not write the database, or the -wal and -journal files beside it",
        "make the directory of the database writable, or copy the database to a writable place",
        (r"attempt to write a readonly database", r"\bSQLITE_READONLY"),
    ),
    FingerprintRow(
        "sqlite.cantopen", Layer.FILESYSTEM, 0.75,
        "SQLite cannot create the -wal, -shm or -journal file beside the database, or the database itself;"
        " a WAL database fails even on reads",
        "make the directory of the database writable, or copy the database to a writable place",
        (
            r'unable to open database "(?P<path>[^"\n]{1,400})"',
            r"unable to open database file",
            r"\bSQLITE_CANTOPEN",
        ),
    ),
    FingerprintRow(
        "ptrace", Layer.SYSCALL, 0.8,
        "tracing other processes is refused",
        "run the debugger or tracer outside the sandbox",
        (
            r"\bptrace(?:\([^)\n]{0,40}\))?: Operation not permitted",
            r"\bPTRACE_[A-Z_]{1,24}: Operation not permitted",
        ),
    ),
    FingerprintRow(
        "nolink", Layer.SYSCALL, 0.8,
        "netlink sockets are refused",
        "read /proc/net or /sys/class/net instead",
        (r"cannot open netlink socket: ",),
    ),
    FingerprintRow(
        "mount.call", Layer.SYSCALL, 0.8,
        "mounting is refused inside the sandbox",
        "mount before the sandbox starts",
        (r"^mount: [^\n]{1,200}: (?:permission denied|must be superuser)",),
    ),
    FingerprintRow(
        "perf", Layer.SYSCALL, 0.7,
        "performance counters are refused",
        "profile outside the sandbox",
        (r"No permission to enable \S{1,64} event",),
    ),
    FingerprintRow(
        "sigsys", Layer.SYSCALL, 0.9,
        "a system call that the filter kills for: usually 32-bit code",
        "use a program built for this machine's own architecture",
        (
            r"\bBad system call",
            r"Ungültiger Betriebssystemaufruf",
            r"Appel système erroné",
            r"Llamada al sistema errónea",
        ),
    ),
    FingerprintRow(
        "net.noname", Layer.NETWORK, 0.6,
        "the name does not exist, or no name service is configured",
        "check the name; with the network off no outside name resolves",
        (
            rf"Could not resolve hostname {_NAME}: (?:{_UNKNOWN_NAMES})",
            rf"could not translate host name \"{_NAME}\" to address: (?:{_UNKNOWN_NAMES})",
            rf"getaddrinfo ENOTFOUND {_NAME}",
            rf"\b(?:{_UNKNOWN_NAMES})",
        ),
    ),
    FingerprintRow(
        "net.dns", Layer.NETWORK, 0.9,
        "names cannot be resolved: there is no way to a name server",
        "run with --network on, or fetch what is needed beforehand",
        (
            rf"Could not resolve host(?:name)?:? {_NAME}",
            rf"getaddrinfo EAI_AGAIN {_NAME}",
            rf"Temporary failure resolving '{_NAME}'",
            rf"unable to resolve host address .{_NAME}",
            rf"Host-Adresse .{_NAME}. kann nicht aufgelöst werden",
            rf"résoudre l.adresse de l.hôte «\s?{_NAME}",
            rf"no se pudo resolver la dirección del equipo «{_NAME}",
            rf"\blookup {_NAME}(?: on \S{{1,64}})?: ",
            rf"Failed to resolve '{_NAME}'",
            rf"could not translate host name \"{_NAME}\"",
            rf"Could not connect to '{_NAME}:\d{{1,5}}': (?:{_TEMPORARILY})",
            rf"Failed to open TCP connection to {_NAME}:\d{{1,5}} \(getaddrinfo",
            rf"UnknownHostException: {_NAME}",
            rf"Bad hostname '{_NAME}",
            rf"\b(?:{_TEMPORARILY})",
            r"\bEAI_AGAIN\b",
        ),
    ),
    FingerprintRow(
        "net.unix", Layer.NETWORK, 0.85,
        "the unix socket is one of the host's, which the network does not include",
        "grant that socket with --allow-socket, unless it hands over the machine as docker.sock does",
        (
            r"dial unix (?P<path>/[^\s:]{1,400}): \w{6,7}: (?:permission denied|operation not permitted)",
            r"error connecting to (?P<path>/[^\n(]{1,400}) \((?:Permission denied|Operation not permitted)\)",
            r"connect (?:EACCES|EPERM) (?P<path>/[^\n:]{1,300})",
            r'connection to server on socket "(?P<path>/[^\n"]{1,300})" failed: Permission denied',
            r"Docker daemon socket at unix://(?P<path>/[^\s:]{1,300})",
        ),
    ),
    FingerprintRow(
        "net.agent", Layer.NETWORK, 0.85,
        "the ssh-agent is a unix socket of the host, which the network does not include",
        'grant it with --allow-socket "$SSH_AUTH_SOCK"',
        (
            r"Error connecting to agent: Permission denied",
            r"Could not open a connection to your authentication agent",
        ),
    ),
    FingerprintRow(
        "net.socket", Layer.NETWORK, 0.85,
        "a filter refuses sockets",
        "run with --network on",
        (
            rf"dial (?:tcp|udp)[46]? {_ADDRESS}:\d{{1,5}}: socket: operation not permitted",
            r"\bsocket: Operation not permitted",
            rf"connect EPERM {_ADDRESS}:\d",
            rf"listen EPERM: operation not permitted {_ADDRESS}",
            rf'connection to server at "{_ADDRESS}", port \d{{1,5}} failed: could not create socket',
            r"could not create socket: Operation not permitted",
            r"SocketException: Operation not permitted",
            r"(?:^|\.\.\. )failed: Operation not permitted\.",
            r"urlopen error \[Errno 1\]",
            r"Failed to establish a new connection: \[Errno 1\]",
            r'/socket\.py", line \d{1,5}, in [^\n]{1,80}\n(?:[^\n]{0,160}\n){1,3}?'
            r"PermissionError: \[Errno 1\]",
        ),
    ),
    FingerprintRow(
        "net.unreachable", Layer.NETWORK, 0.9,
        "there is no network beyond loopback",
        "run with --network on",
        (
            rf"connect to host {_ADDRESS} port \d{{1,5}}: Network is unreachable",
            rf"connect ENETUNREACH {_ADDRESS}:\d",
            rf"dial (?:tcp|udp)[46]? {_ADDRESS}:\d{{1,5}}: connect: network is unreachable",
            rf"/dev/(?:tcp|udp)/{_ADDRESS}/\d{{1,5}}: ",
        ),
        ("ENETUNREACH",),
    ),
    FingerprintRow(
        "net.refused", Layer.APP, 0.8,
        "nothing listens at that address and port; the host there said so, and not the sandbox",
        "start the service, or check its address and port; a command with the network off has a loopback of"
        " its own, where a service of the host is not",
        (
            rf"connect to host {_ADDRESS} port \d{{1,5}}: Connection refused",
            rf"connect ECONNREFUSED {_ADDRESS}:\d",
            rf"dial (?:tcp|udp)[46]? {_ADDRESS}:\d{{1,5}}: connect: connection refused",
            rf'connection to server at "{_ADDRESS}"[^\n]{{0,80}} failed: Connection refused',
        ),
        ("ECONNREFUSED",),
    ),
    FingerprintRow(
        "net.connect", Layer.APP, 0.8,
        "no connection came about: nothing listens there, or there is no way",
        "start the service, or check its address and port; a command with the network off needs --network on,"
        " or the service inside, since its loopback is its own",
        (
            rf"Failed to connect to {_ADDRESS} port \d{{1,5}}",
            rf"connect to host {_ADDRESS} port \d{{1,5}}: failure",
        ),
    ),
    FingerprintRow(
        "net.pip", Layer.NETWORK, 0.6,
        "pip found no index to ask, which it reports as a package without versions",
        "run with --network on, or install from a local directory",
        (
            r"Could not find a version that satisfies the requirement [^\n]{1,160}\(from versions: none\)",
            r"No matching distribution found for ",
        ),
    ),
    FingerprintRow(
        "fs.mkdir", Layer.FILESYSTEM, 0.8,
        "node says ENOENT where a directory could not be made because its place is read-only",
        "add --allow-write for the directory: it is made",
        (r"ENOENT: no such file or directory, mkdir '(?P<path>[^'\n]{1,400})'",),
    ),
    FingerprintRow(
        "fs.erofs", Layer.FILESYSTEM, 0.95,
        "the path is outside what the policy makes writable",
        "add --allow-write for the path",
        errnos=("EROFS",),
    ),
    FingerprintRow(
        "fs.ebusy", Layer.FILESYSTEM, 0.85,
        "the path is a mount point of the sandbox: protected, denied, or the parent of such a path",
        "leave it where it is, or add --allow-write for the path",
        errnos=("EBUSY",),
    ),
    FingerprintRow(
        "fs.exdev", Layer.FILESYSTEM, 0.75,
        "a rename or link would cross the border of a writable root",
        "copy instead, or add --allow-write for both places",
        errnos=("EXDEV",),
    ),
    FingerprintRow(
        "fs.eacces", Layer.FILESYSTEM, 0.9,
        "the policy denies the path, or the file's own permissions do",
        "add --allow-read or --allow-write for the path",
        (
            r"\bAccessDeniedException: (?P<path>[^\n]{1,400}?)(?: -> |$)",
            r"Access to the path '(?P<path>[^'\n]{1,400})' is denied",
        ),
        ("EACCES",),
    ),
    FingerprintRow(
        "fs.eperm", Layer.FILESYSTEM, 0.6,
        "the operation is refused: by the sandbox on macOS, elsewhere mostly by ownership",
        "add --allow-write for the path if the policy denies it",
        errnos=("EPERM",),
    ),
    FingerprintRow(
        "fs.shape", Layer.FILESYSTEM, 0.5,
        "a masked name looks like an empty directory or file from inside",
        "use another name, or allow the path in the policy",
        (r"\bFileAlreadyExistsException: (?P<path>[^\n]{1,400}?)$",),
        ("EEXIST", "EISDIR", "ENOTDIR"),
    ),
    FingerprintRow(
        "fs.hidden", Layer.FILESYSTEM, 0.5,
        "a path that the policy does not make readable does not exist inside the sandbox",
        "add --allow-read for the path if it exists outside",
        (
            r"^[^\s:]{0,99}sh: (?:line )?(?:\d+: )?(?P<path>[^\n:]{1,400}): (?:command )?not found$",
            r": (?P<path>[^\n:]{1,400}): cannot execute: required file not found$",
        ),
        ("ENOENT",),
    ),
)  # fmt: skip

# Nearly every line of a build log contains none of these; only other lines are compared with the table.
# Lower case.
HINTS: Final = (
    "perm", "denied", "deneg", "berechtig", "nicht erlaubt", "read-only", "readonly", "lesbar",
    "lecture seule", "lectura", "busy", "belegt", "occup", "ocupad", "exist", "director", "verzeichnis",
    "dossier", "cross-device", "gerätegrenzen", "inter-périph", "enlace cruzado", "errno", "os error",
    "exdev", "eperm", "eacces", "erofs", "ebusy", "eisdir", "enotdir", "enoent", "eai_", "refused",
    "resol", "résol", "aufgelöst", "name ", "nom ou", "nombre", "enotfound", "getaddrinfo", "lookup",
    "host", "reach", "accessible", "inaccesible", "connect", "verbindungs", "connexion", "conexión",
    "socket", "dial ", "/dev/tcp/", "/dev/udp/", "pty", "pseudo-term", "template", "schablone",
    "modèle", "plantilla", "database", "sqlite_", "system call", "systemauf", "appel système",
    "al sistema", "requirement", "distribution", "not found", "unshare", "bwrap", "loopback",
    "landlock", "seccomp", "/proc", "propagation", "capabilities", "prctl", "apparmor",
    "user namespace", "temporary failure", "ptrace", "superuser", "hôte", "namensaufl",
    "erreichbar",
)  # fmt: skip
