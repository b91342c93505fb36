"""Attempts on processes, descriptors, devices and privileges. Pure module."""

from typing import Final

from holdfast.doctor.escape.attempt import (
    NOTHING,
    REFUSED,
    UNREADABLE,
    UNSEEN,
    UNWRITABLE,
    Attempt,
    Guarantee,
)

_PROCESSES: Final = (
    ("kill-outside", "signal a process outside", "os.kill(scene.victim, 9)", UNSEEN),
    ("kill-group-outside", "signal a process group outside", "os.killpg(scene.victim, 9)", UNSEEN),
    ("kill-all", "signal every process there is", "os.kill(-1, 0)", UNSEEN),
    ("proc-of-outside", "read about a process outside", "show(f'/proc/{scene.victim}/cmdline')", UNSEEN),
    ("environ-of-outside", "read its environment", "show(f'/proc/{scene.victim}/environ')", UNSEEN),
    ("root-of-outside", "go out by its root", "os.listdir(f'/proc/{scene.victim}/root/')", UNSEEN),
    ("cwd-of-outside", "go out by its directory", "os.listdir(f'/proc/{scene.victim}/cwd/')", UNSEEN),
    ("mem-of-outside", "open its memory", "opened(f'/proc/{scene.victim}/mem', os.O_RDONLY)", UNSEEN),
    ("fd-of-outside", "list its descriptors", "os.listdir(f'/proc/{scene.victim}/fd')", UNSEEN),
    ("pidfd-of-outside", "hold a process outside by descriptor", "os.pidfd_open(scene.victim)", UNSEEN),
    ("priority-of-outside", "slow it down", "os.setpriority(os.PRIO_PROCESS, scene.victim, 19)", UNSEEN),
    ("affinity-of-outside", "move it", "os.sched_setaffinity(scene.victim, os.sched_getaffinity(0))", UNSEEN),
    ("limits-of-outside", "read its limits", "call('prlimit64', scene.victim, 7, 0, 0)", UNSEEN),
    ("root-of-first", "go out by the root of process 1", "os.listdir('/proc/1/root/')", UNREADABLE),
    ("cwd-of-first", "go out by the directory of process 1", "os.listdir('/proc/1/cwd/')", UNREADABLE),
    ("mem-of-first", "open the memory of process 1", "opened('/proc/1/mem', os.O_RDONLY)", UNREADABLE),
    ("fd-of-first", "use a descriptor of process 1", "opened('/proc/1/fd/0', os.O_RDONLY)", UNSEEN),
    ("environ-of-first", "read the environment of process 1", "show('/proc/1/environ')", UNREADABLE),
    (
        "namespace-of-first",
        "look up the namespaces of process 1",
        "os.readlink('/proc/1/ns/user')",
        UNREADABLE,
    ),
    (
        "kill-first",
        "kill process 1",
        "try: os.kill(1, 9 if os.readlink('/proc/self') == str(os.getpid()) and os.getppid() == 1 else 0)\n"
        "except PermissionError: contained_unless(False)\n"
        "contained_unless(not os.path.isdir('/proc/1') or os.getppid() != 1)",
        NOTHING,
    ),
    (
        "process-list",
        "count the processes that are not ours",
        "others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]\n"
        "contained_unless(others, str(others))",
        NOTHING,
    ),
)

_DEVICES: Final = (
    ("mknod-memory", "make a device node for memory", "os.mknod('m', 0o20666, os.makedev(1, 1))", REFUSED),
    ("mknod-disk", "make a device node for a disk", "os.mknod('d', 0o60666, os.makedev(8, 0))", REFUSED),
    ("dev-mem", "open /dev/mem", "opened('/dev/mem', os.O_RDONLY)", UNSEEN),
    ("dev-kmsg", "open the kernel's log for writing", "opened('/dev/kmsg')", UNSEEN),
    (
        "block-devices",
        "find a block device",
        "there = [n for n in os.listdir('/dev') if os.path.exists('/dev/' + n)]\n"
        "found = [n for n in there if stat.S_ISBLK(os.stat('/dev/' + n).st_mode)]\n"
        "contained_unless(found, str(found))",
        NOTHING | UNREADABLE,
    ),
    ("loop-control", "open the control of loop devices", "opened('/dev/loop-control')", UNSEEN),
    ("fuse", "open /dev/fuse", "opened('/dev/fuse', os.O_RDWR)", UNSEEN),
    ("kvm", "open /dev/kvm", "opened('/dev/kvm', os.O_RDWR)", UNSEEN),
    ("device-added", "make a file in /dev", "litter('/dev/holdfast-selfcheck')", UNWRITABLE),
    ("terminal-of-host", "open a terminal of the host", "opened(scene.terminal, os.O_RDWR)", UNSEEN),
)

_PRIVILEGES: Final = (
    ("none-left", "hold a privilege", "contained_unless(is_free(status()))", NOTHING),
    (
        "set-user-id-program",
        "run a set-user-id program",
        "child = subprocess.Popen([set_user_id_program(), '--version'], stdout=subprocess.DEVNULL,\n"
        "                         stderr=subprocess.DEVNULL)\n"
        "found = status(child.pid); child.wait(30)\n"
        "contained_unless(is_free(found) or found['Uid'] != status()['Uid'], str(found['Uid']))",
        NOTHING,
    ),
    (
        "set-user-id-made",
        "make a set-user-id copy of a program in the workspace and run it",
        "shutil.copy('/bin/cat', 'sub/cat'); os.chmod('sub/cat', 0o4755)\n"
        "lines = run('sub/cat', '/proc/self/status').splitlines()\n"
        "contained_unless('NoNewPrivs:\\t1' not in lines or 'Seccomp:\\t2' not in lines)",
        NOTHING | REFUSED,
    ),
    (
        "program-from-memory",
        "run a program that is only in memory",
        "fd = os.memfd_create('program'); os.write(fd, pathlib.Path('/bin/cat').read_bytes())\n"
        "found = run(f'/proc/self/fd/{fd}', '/proc/self/status', pass_fds=[fd]).splitlines()\n"
        "contained_unless('NoNewPrivs:\\t1' not in found or 'Seccomp:\\t2' not in found)",
        NOTHING,
    ),
    ("other-user", "become another user", "os.setresuid(os.getuid() + 1, -1, -1)", REFUSED | {"EINVAL"}),
    ("other-group", "become another group", "os.setresgid(os.getgid() + 1, -1, -1)", REFUSED | {"EINVAL"}),
    ("groups", "choose supplementary groups", "os.setgroups([os.getgid()])", REFUSED),
    ("give-away", "give a file to another user", "create('f'); os.chown('f', 1, 1)", REFUSED | {"EINVAL"}),
    (
        "file-capability",
        "put privileges on a file",
        "create('f'); os.setxattr('f', 'security.capability', bytes.fromhex('0100000200200000' + '00' * 12))",
        REFUSED | {"ENOTSUP"},
    ),
    (
        "id-map",
        "write a user id map",
        "os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 4294967295')",
        UNWRITABLE,
    ),
)

PROCESSES: Final = (
    *(Attempt(id_, Guarantee.PROCESSES, title, script, expect) for id_, title, script, expect in _PROCESSES),
    *(Attempt(id_, Guarantee.DEVICES, title, script, expect) for id_, title, script, expect in _DEVICES),
    *(
        Attempt(id_, Guarantee.PRIVILEGES, title, script, expect)
        for id_, title, script, expect in _PRIVILEGES
    ),
    Attempt(
        "typing-for-others",
        Guarantee.DEVICES,
        "type into the terminal of whoever started us (TIOCSTI)",
        "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')",
        REFUSED,
        tty=True,
    ),
    Attempt(
        "typing-for-others-disguised",
        Guarantee.DEVICES,
        "the same with junk in the upper half of the request",
        "call(16 if platform.machine() == 'x86_64' else 29, 0, 0x7700005412, b'x')",
        REFUSED,
        tty=True,
    ),
    Attempt(
        "console-selection",
        Guarantee.DEVICES,
        "paste into the terminal of whoever started us (TIOCLINUX)",
        "import fcntl\nfcntl.ioctl(0, 0x541C, b'\\x02')",
        REFUSED,
        tty=True,
    ),
    Attempt(
        "descriptors",
        Guarantee.DESCRIPTORS,
        "use a descriptor that somebody left open",
        "kept = {int(n) for n in os.listdir('/proc/self/fd')} - {0, 1, 2}\n"
        "kept = {fd for fd in kept if os.path.exists(f'/proc/self/fd/{fd}')}\n"
        "contained_unless(kept, str(kept))",
        NOTHING,
    ),
    Attempt(
        "descriptor-folders",
        Guarantee.DESCRIPTORS,
        "go out by a directory that is open",
        "found = []\n"
        "for fd in range(1024):\n"
        "    with contextlib.suppress(OSError): found += [fd] * stat.S_ISDIR(os.fstat(fd).st_mode)\n"
        "contained_unless(found, str(found))",
        NOTHING,
    ),
)
