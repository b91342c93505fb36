"""Attempts on files: outside, protected, denied. Pure module."""

from typing import Final

from holdfast.doctor.escape.attempt import (
    CONTAINED,
    NOTHING,
    UNMOVABLE,
    UNREADABLE,
    UNSEEN,
    UNWRITABLE,
    Attempt,
    Guarantee,
)

_OUTSIDE: Final = (
    ("create-outside", "create a file outside", "create(outside / 'new')"),
    ("overwrite-outside", "open a file outside for writing", "opened(outside / 'file')"),
    ("append-outside", "append to a file outside", "opened(outside / 'file', os.O_WRONLY | os.O_APPEND)"),
    ("truncate-outside", "truncate a file outside", "os.truncate(outside / 'file', 0)"),
    ("remove-outside", "remove a file outside", "os.unlink(outside / 'file')"),
    ("rename-outside", "rename a file outside", "os.rename(outside / 'file', outside / 'moved')"),
    ("mkdir-outside", "make a directory outside", "os.mkdir(outside / 'folder')"),
    ("symlink-outside", "make a link outside", "os.symlink('/', outside / 'link')"),
    ("fifo-made-outside", "make a pipe outside", "os.mkfifo(outside / 'pipe')"),
    ("create-etc", "create a file in /etc", "litter('/etc/holdfast-selfcheck')"),
    ("create-root", "create a file in /", "litter('/holdfast-selfcheck')"),
    ("create-home", "create a file at home", "litter(os.path.join(scene.home, '.holdfast-selfcheck'))"),
    ("dotdot", "go out with ..", "create(workspace / 'sub/../../outside/new')"),
    ("link-out", "write through a link that leads out", "os.symlink(outside, 'out'); create('out/new')"),
    (
        "link-to-file-out",
        "write through a link to a file outside",
        "os.symlink(outside / 'file', 'out'); opened('out')",
    ),
    (
        "links-chained-out",
        "go out over relative links and ..",
        "os.mkdir('a'); os.symlink('../..', 'a/up'); create('a/up/outside/new')",
    ),
    (
        "descriptor-of-outside",
        "create a file below a directory descriptor from outside",
        "fd = os.open(outside, os.O_RDONLY); os.open('new', os.O_WRONLY | os.O_CREAT, dir_fd=fd)",
    ),
    (
        "reopen-proc-fd",
        "reopen a file that is open for reading, through /proc/self/fd",
        "fd = os.open(outside / 'file', os.O_RDONLY); opened(f'/proc/self/fd/{fd}', os.O_RDWR)",
    ),
    (
        "reopen-dev-fd",
        "reopen a file that is open for reading, through /dev/fd",
        "fd = os.open(outside / 'file', os.O_RDONLY); opened(f'/dev/fd/{fd}', os.O_RDWR)",
    ),
    (
        "reopen-path-fd",
        "reopen a file that is open as a path only",
        "fd = os.open(outside / 'file', os.O_PATH); opened(f'/proc/self/fd/{fd}', os.O_WRONLY)",
    ),
    ("chmod-outside", "change permissions outside", "os.chmod(outside / 'file', 0o777)"),
    (
        "fchmod-outside",
        "change permissions outside through a descriptor",
        "os.fchmod(os.open(outside / 'file', os.O_RDONLY), 0o777)",
    ),
    ("chown-outside", "change the owner outside", "os.chown(outside / 'file', os.getuid(), os.getgid())"),
    ("utime-outside", "change times outside", "os.utime(outside / 'file', (1, 1))"),
    (
        "flags-outside",
        "set inode flags outside",
        "import fcntl\n"
        "fd = os.open(outside / 'file', os.O_RDONLY)\n"
        "flags = bytearray(8)\n"
        "with contextlib.suppress(OSError): fcntl.ioctl(fd, 0x80086601, flags)\n"
        "fcntl.ioctl(fd, 0x40086602, flags)",
    ),
    (
        "tmpfile-outside",
        "make a file without a name outside and name it",
        "fd = os.open(outside, os.O_TMPFILE | os.O_WRONLY)\nos.link(f'/proc/self/fd/{fd}', outside / 'new')",
    ),
    (
        "pipe-of-host",
        "write into a named pipe of the host",
        "os.write(os.open(scene.fifo, os.O_WRONLY | os.O_NONBLOCK), b'x')",
    ),
    (
        "through-proc-root",
        "write outside by way of /proc/self/root",
        "create(f'/proc/self/root{outside}/new')",
    ),
    ("through-proc-cwd", "write outside by way of /proc/self/cwd", "create('/proc/self/cwd/../outside/new')"),
)

_LINKED: Final = (
    (
        "hardlink-of-outside",
        "link a file from outside into the workspace, then write",
        "os.link(outside / 'file', 'linked'); opened('linked')",
    ),
    (
        "hardlink-to-outside",
        "link a file of the workspace outside",
        "create('f'); os.link('f', outside / 'l')",
    ),
    ("move-outside", "move a file of the workspace outside", "create('f'); os.rename('f', outside / 'f')"),
    ("move-in", "move a file from outside into the workspace", "os.rename(outside / 'file', 'f')"),
    (
        "exchange-outside",
        "exchange a file with one outside",
        "create('f'); call('renameat2', HERE, b'f', HERE, os.fsencode(outside / 'file'), 2)",
    ),
    (
        "tmpfile-linked-outside",
        "name a nameless file of the workspace outside",
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY)\n"
        "call('linkat', HERE, f'/proc/self/fd/{fd}'.encode(), HERE, os.fsencode(outside / 'n'), 0x400)",
    ),
    (
        "descriptor-linked-in",
        "link an open file from outside into the workspace",
        "fd = os.open(outside / 'file', os.O_RDONLY)\n"
        "call('linkat', HERE, f'/proc/self/fd/{fd}'.encode(), HERE, b'linked', 0x400); opened('linked')",
    ),
)

_PROTECTED: Final = (
    ("git-write", "write below .git", "create(git / 'hooks-new')"),
    ("git-overwrite", "overwrite .git/config", "opened(git / 'config')"),
    ("git-rename", "rename .git away", "os.rename(git, workspace / 'git-away')"),
    ("git-remove", "remove .git/config", "os.unlink(git / 'config')"),
    ("codex-write", "write below .codex", "create(workspace / '.codex/config.toml')"),
    ("agents-write", "write below .agents", "create(workspace / '.agents/new')"),
    (
        "git-alias",
        "write below .git by another way to the workspace",
        "os.symlink('.', 'alias'); create('alias/.git/new')",
    ),
    (
        "git-exchange",
        "exchange .git with a directory of our own",
        "os.mkdir('own'); call('renameat2', HERE, b'own', HERE, b'.git', 2)",
    ),
    ("git-replace", "rename a directory of our own over .git", "os.mkdir('own'); os.rename('own', '.git')"),
    ("locked-write", "write below a read-only directory in the workspace", "create(locked / 'new')"),
    ("locked-rename", "rename a read-only directory in the workspace", "os.rename(locked, 'conf/away')"),
    ("locked-chmod", "change permissions of a read-only file", "os.chmod(locked / 'file', 0o777)"),
    (
        "locked-hardlink",
        "link a read-only file to a writable place",
        "os.link(locked / 'file', 'linked'); opened('linked')",
    ),
    (
        "locked-tmpfile",
        "name a nameless file below a read-only directory",
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY)\n"
        "call('linkat', HERE, f'/proc/self/fd/{fd}'.encode(), HERE, os.fsencode(locked / 'n'), 0x400)",
    ),
)

_DENIED: Final = (
    ("secret-read", "read a denied file", "show(secrets / 'key')"),
    ("secret-chmod", "give oneself the right to read it", "os.chmod(secrets / 'key', 0o644)"),
    ("secret-link-read", "read it through a link", "os.symlink(secrets / 'key', 'k'); show('k')"),
    ("vault-list", "list a denied directory", "os.listdir(secrets / 'vault')"),
    ("vault-read", "read a file in a denied directory", "show(secrets / 'vault/inner')"),
    ("vault-read-root", "read it by way of /proc/self/root", "show(f'/proc/self/root{secrets}/vault/inner')"),
    ("secret-hardlink", "link a denied file to another name", "os.link(secrets / 'key', 'k'); show('k')"),
    ("secret-rename", "rename a denied file", "os.rename(secrets / 'key', 'k'); show('k')"),
    ("vault-rename", "rename a denied directory", "os.rename(secrets / 'vault', 'v'); show('v/inner')"),
    (
        "secret-exchange",
        "exchange a denied file with another",
        "create('k'); call('renameat2', HERE, b'k', HERE, os.fsencode(secrets / 'key'), 2); show('k')",
    ),
)

FILES: Final = (
    Attempt(
        "setxattr-outside",
        Guarantee.OUTSIDE,
        "set an attribute outside",
        "os.setxattr(outside / 'file', 'user.x', b'x')",
        UNWRITABLE | {"ENOTSUP"},
    ),
    *(Attempt(id_, Guarantee.OUTSIDE, title, script, UNWRITABLE) for id_, title, script in _OUTSIDE),
    *(Attempt(id_, Guarantee.OUTSIDE, title, script, UNMOVABLE) for id_, title, script in _LINKED),
    *(Attempt(id_, Guarantee.PROTECTED, title, script, UNMOVABLE) for id_, title, script in _PROTECTED),
    *(
        Attempt(id_, Guarantee.DENIED, title, script, UNREADABLE | UNMOVABLE)
        for id_, title, script in _DENIED
    ),
    Attempt(
        "parent-renamed-to-write",
        Guarantee.PROTECTED,
        "rename the parent of a read-only directory; the next command writes at the new place",
        "os.rename('conf', 'elsewhere')",
        UNSEEN,
        after="create('elsewhere/locked/new')",
    ),
    Attempt(
        "parent-renamed-to-read",
        Guarantee.DENIED,
        "rename the parent of a denied file; the next command reads at the new place",
        "os.rename('secrets', 'elsewhere')",
        UNSEEN,
        after="show('elsewhere/key')",
    ),
    Attempt(
        "parent-exchanged",
        Guarantee.DENIED,
        "exchange the parent of a denied file; the next command reads at the new place",
        "os.mkdir('own'); call('renameat2', HERE, b'own', HERE, b'secrets', 2)",
        UNSEEN,
        after="show('own/key')",
    ),
    Attempt(
        "parent-replaced-by-link",
        Guarantee.PROTECTED,
        "put a link where the parent of a read-only directory was; the next command writes",
        "os.rename('conf', 'elsewhere'); os.symlink('elsewhere', 'conf')",
        UNWRITABLE | {CONTAINED},
        after="create('conf/locked/new')",
    ),
    Attempt(
        "secret-by-handle",
        Guarantee.DENIED,
        "open a denied file by the number that its file system has for it",
        "fd = os.open('.', os.O_RDONLY)\n"
        "handle = ctypes.create_string_buffer(136); handle[0:4] = (128).to_bytes(4, sys.byteorder)\n"
        "where = ctypes.c_int()\n"
        "call('name_to_handle_at', HERE, b'.', handle, ctypes.byref(where), 0)\n"
        "call('open_by_handle_at', fd, handle, os.O_RDONLY)",
        UNREADABLE | {"EOPNOTSUPP"},
    ),
    Attempt(
        "shared-memory-of-host",
        Guarantee.OUTSIDE,
        "open shared memory of the host by name",
        "show('/dev/shm/' + scene.shared)",
        UNSEEN,
    ),
    Attempt(
        "sysv-memory-of-host",
        Guarantee.OUTSIDE,
        "attach System V memory of the host by key",
        "call('shmget', scene.shm_key, 1, 0)",
        UNSEEN,
    ),
    Attempt(
        "writable-mounts",
        Guarantee.OUTSIDE,
        "find a mount of the host that is still writable",
        "def made(p):\n"
        "    with contextlib.suppress(OSError):\n"
        "        os.mkdir(f'{p}/{scene.abstract}'); os.rmdir(f'{p}/{scene.abstract}'); return True\n"
        "lines = pathlib.Path('/proc/self/mountinfo').read_text().splitlines()\n"
        "points = [(line.split()[4], line.split()[5]) for line in lines]\n"
        "own = (scene.workspace, scene.tmp, '/dev', '/proc')\n"
        "top = dict(points)\n"
        "found = [p for p, o in top.items() if 'rw' in o.split(',') and not p.startswith(own)\n"
        "         and os.path.isdir(p) and made(p)]\n"
        "contained_unless(found, str(found))",
        NOTHING,
    ),
)
