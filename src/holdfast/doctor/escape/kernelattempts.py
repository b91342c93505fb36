"""Attempts on the kernel: its switches, and calls that could undo a sandbox. Pure module.

Calls get arguments that can not do anything. A call that is let through fails for those
(EFAULT, EBADF, EINVAL, ESRCH), a refused one fails before it looks at them.
"""

from typing import Final

from holdfast.doctor.escape.attempt import NOTHING, REFUSED, UNSEEN, UNWRITABLE, Attempt, Guarantee

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
