"""All attempts made from inside a sandbox, to show that it holds and does not hinder. Pure module."""

from typing import Final

from holdfast.doctor.escape.attempt import (
    NOTHING,
    REFUSED,
    UNREACHED,
    UNREADABLE,
    UNRESOLVED,
    UNSEEN,
    UNWRITABLE,
    Attempt,
    Guarantee,
)
from holdfast.doctor.escape.everyday import EVERYDAY
from holdfast.doctor.escape.fileattempts import FILES
from holdfast.doctor.escape.ownattempts import OWN

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
        "type into the terminal of the process that started us (TIOCSTI)",
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
        "paste into the terminal of the process that started us (TIOCLINUX)",
        "import fcntl\nfcntl.ioctl(0, 0x541C, b'\\x02')",
        REFUSED,
        tty=True,
    ),
    Attempt(
        "descriptors",
        Guarantee.DESCRIPTORS,
        "use a descriptor that was left open",
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
_FAR: Final = "'192.0.2.1'"  # reserved for examples: no host has it
_NEAR: Final = "'127.0.0.1'"

_NETWORK: Final = (
    ("tcp-far", "connect to an address far away", f"tcp({_FAR}, 9)"),
    ("tcp-host", "connect to a server of the host on loopback", f"tcp({_NEAR}, scene.tcp)"),
    ("udp-far", "send a datagram far away", f"udp({_FAR}, 9)"),
    ("udp-host", "send a datagram to the host on loopback", f"udp({_NEAR}, scene.udp)"),
    (
        "tcp-fast-open",
        "send data with the first packet of a connection",
        f"socket.socket().sendto(b'x', socket.MSG_FASTOPEN, ({_NEAR}, scene.tcp))",
    ),
    ("tcp-mapped", "connect by an IPv6 name of an IPv4 address", "tcp('::ffff:127.0.0.1', scene.tcp)"),
    ("tcp-any", "connect to the address that means this host", "tcp('0.0.0.0', scene.tcp)"),
    (
        "multicast",
        "send a datagram to everybody",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('224.0.0.251', 5353))",
    ),
    (
        "dns-far",
        "ask a name server by its address",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.53', 53)); s.send(b'x')",
    ),
)

_FAMILIES: Final = (
    ("raw", "a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
    ("raw6", "a raw IPv6 socket", "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)"),
    ("packet", "a packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    ("vsock", "a socket to the hypervisor", "socket.socket(40, socket.SOCK_STREAM)"),
    ("alg", "a socket to the kernel's ciphers", "socket.socket(38, socket.SOCK_SEQPACKET)"),
    ("bluetooth", "a Bluetooth socket", "socket.socket(31, socket.SOCK_RAW, 1)"),
    ("xdp", "an express data path socket", "socket.socket(44, socket.SOCK_RAW)"),
    ("netlink-uevent", "listen to device events", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)"),
    ("netlink-audit", "a socket to the audit system", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)"),
    (
        "netlink-netfilter",
        "a socket to the packet filter",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
    ),
)

_SOCKETS: Final = (
    ("unix-path", "connect to a unix socket of the host", "socket.socket(1).connect(scene.stream)"),
    (
        "unix-abstract",
        "connect to an abstract unix socket of the host",
        "socket.socket(1).connect('\\0' + scene.abstract)",
    ),
    (
        "unix-datagram",
        "send to a datagram socket of the host",
        "socket.socket(1, socket.SOCK_DGRAM).sendto(b'x', scene.datagram)",
    ),
    (
        "unix-pair-datagram",
        "turn one end of a pair into a way to a datagram socket of the host",
        "a, b = socket.socketpair(1, socket.SOCK_DGRAM); a.sendto(b'x', scene.datagram)",
    ),
    (
        "unix-pair-raw",
        "the same with a pair that is called raw",
        "a, b = socket.socketpair(1, socket.SOCK_RAW); a.sendto(b'x', scene.datagram)",
    ),
    (
        "unix-link",
        "connect to a unix socket of the host through a link",
        "os.symlink(scene.stream, 'to-stream'); socket.socket(1).connect('to-stream')",
    ),
    (
        "unix-relative",
        "connect to a unix socket of the host by a name relative to its directory",
        "os.chdir(os.path.dirname(scene.stream)); socket.socket(1).connect(os.path.basename(scene.stream))",
    ),
    (
        "unix-pair-stream",
        "connect one end of a pair to a socket of the host",
        "a, b = socket.socketpair(1, socket.SOCK_STREAM); b.close(); a.connect(scene.stream)",
    ),
)

NETWORK: Final = (
    *(Attempt(id_, Guarantee.NETWORK, title, script, UNREACHED) for id_, title, script in _NETWORK),
    *(
        Attempt(id_, Guarantee.NETWORK, f"make {title}", script, REFUSED)
        if title.startswith(("a ", "an "))
        else Attempt(id_, Guarantee.NETWORK, title, script, REFUSED)
        for id_, title, script in _FAMILIES
    ),
    *(
        Attempt(id_, Guarantee.SOCKETS, title, script, UNREACHED | {"EISCONN", "EINVAL"})
        for id_, title, script in _SOCKETS
    ),
    Attempt(
        "dns",
        Guarantee.NETWORK,
        "look up a host name",
        "socket.getaddrinfo('holdfast-selfcheck.example.com', 80)",
        frozenset({UNRESOLVED}),
    ),
    Attempt(
        "interfaces",
        Guarantee.NETWORK,
        "find an interface that is not loopback",
        "found = [name for _, name in socket.if_nameindex() if name != 'lo']\n"
        "contained_unless(found, str(found))",
        NOTHING | REFUSED,
    ),
    Attempt(
        "interface-down",
        Guarantee.NETWORK,
        "change an interface",
        "import fcntl, struct\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sH22x', b'lo', 0x41))",
        REFUSED,
    ),
)
# Calls get arguments that cannot have any effect. A permitted call fails because of them (EFAULT, EBADF,
# EINVAL, ESRCH), a refused one fails before the kernel looks at them.
_SWITCHES: Final = (
    (
        "sysctl-write",
        "set a kernel setting to what it is",
        "p = pathlib.Path('/proc/sys/vm/swappiness'); p.write_text(p.read_text())",
    ),
    ("core-pattern", "open the name of the core dump program", "opened('/proc/sys/kernel/core_pattern')"),
    ("modprobe-path", "open the name of the module loader", "opened('/proc/sys/kernel/modprobe')"),
    ("hostname-sysctl", "open the host name", "opened('/proc/sys/kernel/hostname')"),
    ("sysrq", "open the emergency keys", "opened('/proc/sysrq-trigger')"),
    ("irq", "open the affinity of interrupts", "opened('/proc/irq/default_smp_affinity')"),
    ("sysfs-file", "open a setting in /sys", "opened('/sys/kernel/mm/transparent_hugepage/enabled')"),
    ("uevent-helper", "open the name of the device event program", "opened('/sys/kernel/uevent_helper')"),
    (
        "cgroup-move",
        "move a process to the control group at the top",
        "opened('/sys/fs/cgroup/cgroup.procs')",
    ),
    (
        "cgroup-made",
        "make a control group",
        "p = '/sys/fs/cgroup/holdfast-selfcheck'; os.mkdir(p); os.rmdir(p)",
    ),
)

_CALLS: Final = (
    (
        "lease",
        "take a lease that makes other writers of the file wait",
        "import fcntl; fcntl.fcntl(os.open('/etc/passwd', os.O_RDONLY), 1024, 0)",
    ),
    (
        "lease-delegated",
        "take a lease on a directory, by the newer call",
        "import fcntl; fcntl.fcntl(os.open('/etc', os.O_RDONLY), 1040, b'\\0' * 8)",
    ),
    (
        "lease-notice",
        "have the kernel tell us of changes in a directory by signals",
        "import fcntl; fcntl.fcntl(os.open('/etc', os.O_RDONLY), 1026, 1)",
    ),
    ("mount", "mount a file system", "call('mount', b'none', b'sub', b'no-such-type', 0, 0)"),
    ("bind-mount", "show a directory at another place", "call('mount', b'/no/such', b'sub', 0, 4096, 0)"),
    ("remount", "make .git writable by mounting it again", "call('mount', 0, b'.git', 0, 4096 | 32, 0)"),
    ("remount-root", "make / writable by mounting it again", "call('mount', 0, b'sub', 0, 4096 | 32, 0)"),
    ("propagation", "let mounts out to the host", "call('mount', 0, b'sub', 0, 1 << 20, 0)"),
    ("unmount-protection", "unmount what protects .git", "call('umount2', b'.git', 2)"),
    ("unmount-mask", "unmount what covers a denied file", "call('umount2', b'secrets/key', 2)"),
    ("unmount-workspace", "unmount the workspace", "call('umount2', os.fsencode(workspace), 2)"),
    ("pivot-root", "change the root of all", "call('pivot_root', BAD, BAD)"),
    ("chroot", "change our root", "call('chroot', b'sub')"),
    ("open-tree", "copy a tree of mounts", "call('open_tree', HERE, b'sub', 1)"),
    ("move-mount", "move a mount", "call('move_mount', HERE, b'.git', HERE, b'sub', 0)"),
    ("fsopen", "make a file system", "call('fsopen', b'tmpfs', 0)"),
    ("fspick", "reconfigure a file system", "call('fspick', HERE, b'/', 0)"),
    (
        "mount-setattr",
        "take the read-only attribute off .git",
        "call('mount_setattr', HERE, b'.git', 0, ctypes.create_string_buffer(b'\\0' * 8 + b'\\1', 32), 32)",
    ),
    ("unshare-user", "be root in a new user namespace", "call('unshare', NEWUSER)"),
    ("unshare-user-disguised", "the same with junk in the upper half", "call('unshare', NEWUSER | 1 << 40)"),
    ("unshare-mounts", "enter a new mount namespace", "call('unshare', NEWNS)"),
    ("unshare-network", "enter a new network namespace", "call('unshare', NEWNET)"),
    ("unshare-processes", "enter a new process namespace", "call('unshare', NEWPID)"),
    ("clone-user", "have a child in a new user namespace", "clone(NEWUSER)"),
    ("clone-user-mounts", "have one in new user and mount namespaces", "clone(NEWUSER | NEWNS)"),
    ("clone-mounts", "have one in a new mount namespace", "clone(NEWNS)"),
    ("clone3", "use the call whose flags no filter can see", "call('clone3', BAD, 88)"),
    ("setns-mounts", "enter a mount namespace", "call('setns', os.open('/proc/self/ns/mnt', 0), 0)"),
    ("setns-network", "enter a network namespace", "call('setns', os.open('/proc/self/ns/net', 0), 0)"),
    ("setns-host-name", "enter a host name namespace", "call('setns', os.open('/proc/self/ns/uts', 0), 0)"),
    ("setns-pidfd", "enter all of a process", "call('setns', os.pidfd_open(os.getpid()), NEWNS | NEWNET)"),
    ("ptrace", "trace a process", "call('ptrace', 16, 0x3fffffff, 0, 0)"),
    ("process-vm-readv", "read another's memory", "call('process_vm_readv', 0x3fffffff, 0, 0, 0, 0, 0)"),
    ("process-vm-writev", "write another's memory", "call('process_vm_writev', 0x3fffffff, 0, 0, 0, 0, 0)"),
    ("pidfd-getfd", "take another's descriptor", "call('pidfd_getfd', -1, 0, 0)"),
    ("io-uring-setup", "make a ring of calls", "call('io_uring_setup', 1, BAD)"),
    ("io-uring-enter", "use a ring of calls", "call('io_uring_enter', -1, 0, 0, 0, 0, 0)"),
    ("io-uring-register", "register with a ring of calls", "call('io_uring_register', -1, 0, 0, 0)"),
    ("bpf", "load a program into the kernel", "call('bpf', 0, BAD, 8)"),
    ("perf", "measure the kernel", "call('perf_event_open', BAD, 0, -1, -1, 0)"),
    ("userfaultfd", "handle page faults", "call('userfaultfd', 1)"),
    ("add-key", "add a key", "call('add_key', BAD, BAD, 0, 0, 0)"),
    ("request-key", "request a key", "call('request_key', BAD, BAD, 0, 0)"),
    ("keyctl", "use a key ring", "call('keyctl', 0, -3, 0, 0, 0)"),
    ("kexec", "load another kernel", "call('kexec_load', 0, 0, 0, 0xffff)"),
    ("kexec-file", "load another kernel from a file", "call('kexec_file_load', -1, -1, 0, 0, 0xffff)"),
    ("init-module", "load a module", "call('init_module', BAD, 0, BAD)"),
    ("finit-module", "load a module from a file", "call('finit_module', -1, BAD, 0)"),
    ("delete-module", "unload a module", "call('delete_module', BAD, 0)"),
    ("reboot", "restart the machine", "call('reboot', 0, 0, 0, 0)"),
    ("swapon", "add swap space", "call('swapon', BAD, 0)"),
    ("set-host-name", "rename the host", "call('sethostname', BAD, 4)"),
    ("set-domain-name", "rename the domain", "call('setdomainname', BAD, 4)"),
    (
        "set-clock",
        "change the clock",
        "b = ctypes.create_string_buffer(208); b[0:4] = (0x4000).to_bytes(4, sys.byteorder)\n"
        "call('adjtimex', b)",
    ),
    ("accounting", "start process accounting", "call('acct', BAD)"),
    ("x32", "make a call by its x32 number", "call(0x40000000 + 39)"),
    ("x32-unshare", "make a new user namespace by an x32 number", "call(0x40000000 + 272, NEWUSER)"),
)

KERNEL: Final = (
    *(
        Attempt(id_, Guarantee.SWITCHES, title, script, UNWRITABLE | UNSEEN)
        for id_, title, script in _SWITCHES
    ),
    *(Attempt(id_, Guarantee.CALLS, title, script, REFUSED) for id_, title, script in _CALLS),
    Attempt(
        "proc-files",
        Guarantee.SWITCHES,
        "find a file of the kernel's in /proc that can be opened for writing",
        "contained_unless(writable_below('/proc', 3))",
        NOTHING,
    ),
    Attempt(
        "sys-files",
        Guarantee.SWITCHES,
        "find a file in /sys/kernel that can be opened for writing",
        "contained_unless(writable_below('/sys/kernel', 3))",
        NOTHING,
    ),
    Attempt(
        "quota",
        Guarantee.CALLS,
        "change a quota",
        "call('quotactl_fd', os.open('.', os.O_RDONLY), 0x80000800, 0, BAD)",
        REFUSED | {"EINVAL"},
    ),
    Attempt(
        "setns-user",
        Guarantee.CALLS,
        "enter a user namespace",
        "call('setns', os.open('/proc/self/ns/user', 0), 0)",
        REFUSED | {"EINVAL"},
    ),
    Attempt(
        "32-bit-call",
        Guarantee.CALLS,
        "make a call by its 32-bit number",
        "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "machine_code(bytes.fromhex('b814000000cd80c3'))",  # mov eax, 20; int 0x80; ret
        frozenset({"SIGSYS"}),
    ),
    Attempt(
        "filter-removed",
        Guarantee.CALLS,
        "start a thread that the filter does not hold",
        "import threading\nfound = []\n"
        "t = threading.Thread(target=lambda: found.append(status('thread-self')['Seccomp'])); t.start()\n"
        "t.join(); contained_unless(found != [['2']])",
        NOTHING,
    ),
)
ESCAPES: Final = (*FILES, *PROCESSES, *NETWORK, *KERNEL, *OWN)
ATTEMPTS: Final[tuple[Attempt, ...]] = (*ESCAPES, *EVERYDAY)

__all__ = ["ATTEMPTS", "ESCAPES", "EVERYDAY", "Attempt", "Guarantee"]
