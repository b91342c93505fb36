"""The view: a plan as mounts of the process that will become the command.

The view is made of the host's own mounts. First every tree that a step names is copied, detached, while the
host is still visible. Then either everything becomes read-only in one call, or a new root covers everything.
The copies are then put in their places from first step to last. A covered root stays mounted underneath, out
of reach without privileges.

A pin is a directory mounted on itself, below the copy that covers it. The kernel refuses to rename or remove
a mount point in any view, so the ancestors of a protected path stay where they are. Since no pin is on top,
files still move freely between directories.

Nothing is created on the host. Mount points are only made in file systems that are made here.

Standard library only, and little of it: this runs in a forked child of the launcher.
"""

import errno
import os
import stat

from holdfast.light import Callable, Final
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, Stage
from holdfast.sandbox.plan.plan import GRANTS, MASKS, NAME_SERVER, Base, Plan, Step, StepKind

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = (
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)
# These files check for user 0, not for a privilege: root without privileges could still change the host.
KERNEL_SWITCHES: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
CONSOLE: Final = "/dev/console"  # place of the command's terminal in the view
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not a file of ours, but where the C library expects it
MASK_SOURCE: Final = "/dev/.masks"  # the masks that are copied over denied paths, by kind

# Words for what is weaker than the plan requires, where the host does not allow more.
OLD_PROC: Final = "proc"  # the host's process list is visible


def build_view(plan: Plan, tty_path: str | None) -> tuple[str, ...]:
    """Change the mounts of this process to what the plan says; return what came out weaker.

    Raises:
        StageFailed: the plan cannot be applied in full.
    """
    weakened: list[str] = []
    with Stage("propagation"):
        root = kernel.open_path("/")
        kernel.make_private(root)
    if plan.base is Base.UNTOUCHED:
        with Stage("proc"):
            proc = kernel.open_path("/proc")
        if not _fresh_proc(proc):
            weakened.append(OLD_PROC)
        if plan.by_name:
            _show_resolver(kernel.open_path)
    elif not _View(plan, root).build(tty_path):
        weakened.append(OLD_PROC)
    os.close(root)
    with Stage("cwd", plan.cwd):
        os.chdir(plan.cwd)  # the inherited directory is in the tree that is covered now
    return tuple(weakened)


def _fresh_proc(target: int) -> bool:
    """Mount a /proc of this PID namespace; False when the host forbids it."""
    try:
        fresh = kernel.new_filesystem("proc", NO_SUID | NO_DEV | NO_EXEC)
    except OSError:
        return False  # some entry of the host's own /proc is covered, as in most containers
    with Stage("proc"):
        kernel.put_tree(fresh, target)
        os.close(fresh)
        os.close(target)
        for name in KERNEL_SWITCHES:
            try:
                fd = kernel.open_path(f"/proc/{name}")
            except FileNotFoundError:
                continue
            tree = kernel.copy_tree(fd)
            kernel.set_attributes(tree, READ_ONLY)
            kernel.put_tree(tree, fd)
            os.close(tree)
            os.close(fd)
    return True


class _View:
    """One application of a plan with a mount view. Descriptors left open are close-on-exec."""

    def __init__(self, plan: Plan, root: int) -> None:
        self._plan = plan
        self._root = root
        self._own: set[int] = set()  # device numbers of the file systems that we made
        self._unsealed: list[int] = []
        self._needed: set[str] = set()  # directories on the way to a grant
        for step in plan.steps:
            if step.kind in GRANTS:
                self._needed.update(_ancestors(step.path))

    def build(self, tty_path: str | None) -> bool:
        """Build the view. Return whether /proc is the one of this PID namespace."""
        trees = [self._copy(step) for step in self._plan.steps]
        with Stage("dev"):
            devices = self._copy_devices(tty_path)
        with Stage("proc"):
            old_proc = _copy_of("/proc", READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)
        for step in self._plan.steps:
            if step.kind is StepKind.PIN:
                with Stage("pin", step.path):
                    _mount_on_itself(step.path)
        self._lay_base(trees)
        with Stage("dev"):
            self._fill_dev(devices)
        with Stage("proc"):
            proc = self._mount_point("/proc", directory=True)
        fresh = _fresh_proc(proc)
        if not fresh:
            with Stage("proc"):
                kernel.put_tree(old_proc, proc)
        for link in self._plan.links:
            with Stage("link", link.path):
                self._make_parents(link.path)
                os.symlink(link.target, link.path)
        for step, tree in zip(self._plan.steps, trees, strict=True):
            with Stage(step.kind.value, step.path):
                self._apply(step, tree)
        if self._plan.by_name:
            _show_resolver(lambda path: self._mount_point(path, directory=False))
        with Stage("seal"):
            self._seal()
        return fresh

    def _copy(self, step: Step) -> int:
        """The tree that a step will put in its place, with its attributes; -1 if the step needs none."""
        if step.kind not in GRANTS or step.path in ("/proc", "/dev") or step.path.startswith("/proc/"):
            return -1  # the view has its own
        attributes = NO_SUID
        if not step.path.startswith("/dev/"):
            attributes |= NO_DEV  # a device that a policy names is meant to be usable
        if step.kind is not StepKind.WRITABLE:
            attributes |= READ_ONLY
        with Stage(step.kind.value, step.path):
            return _copy_of(step.path, attributes)

    def _copy_devices(self, tty_path: str | None) -> list[tuple[str, int]]:
        wanted = [(name, f"/dev/{name}") for name in _DEVICES]
        if tty_path is not None:
            wanted.append((os.path.basename(CONSOLE), tty_path))
        copies = []
        for name, path in wanted:
            try:
                copies.append((name, _copy_of(path, NO_SUID | NO_EXEC)))
            except FileNotFoundError:
                if path == tty_path:
                    raise
        return copies

    def _lay_base(self, trees: list[int]) -> None:
        writable_root = next(
            (i for i, step in enumerate(self._plan.steps) if step.path == "/" and trees[i] >= 0), None
        )
        if writable_root is not None:
            with Stage("root"):
                _become_root(trees[writable_root], self._root)
            trees[writable_root] = -1
        elif self._plan.base is Base.EMPTY:
            with Stage("root"):
                tree = self._new_tmpfs("0755", NO_SUID | NO_DEV)
                _become_root(tree, self._root)
        else:
            with Stage("readonly"):
                kernel.set_attributes_below(self._root, READ_ONLY | NO_SUID | NO_DEV)

    def _new_tmpfs(self, mode: str, attributes: int) -> int:
        tree = kernel.new_filesystem("tmpfs", attributes, mode=mode)
        self._own.add(os.fstat(tree).st_dev)
        self._unsealed.append(tree)
        return tree

    def _fill_dev(self, devices: list[tuple[str, int]]) -> None:
        dev = self._new_tmpfs("0755", NO_SUID | NO_EXEC)
        _put(dev, self._mount_point("/dev", directory=True))
        for name, tree in devices:
            os.mknod(name, stat.S_IFREG | 0o444, dir_fd=dev)
            _put_new(tree, f"/dev/{name}")
        for name, target in _DEVICE_LINKS:
            os.symlink(target, name, dir_fd=dev)
        for name in ("pts", "shm"):
            os.mkdir(name, 0o755, dir_fd=dev)
        pts = kernel.new_filesystem("devpts", NO_SUID | NO_EXEC, ptmxmode="0666", mode="0620")
        _put_new(pts, "/dev/pts")
        shm = kernel.new_filesystem("tmpfs", NO_SUID | NO_DEV, mode="1777")
        _put_new(shm, SHARED_MEMORY)
        if self._plan.later or any(step.kind in MASKS for step in self._plan.steps):
            os.mkdir(os.path.basename(MASK_SOURCE), 0, dir_fd=dev)
            _put_new(_new_masks(), MASK_SOURCE)

    def _apply(self, step: Step, tree: int) -> None:
        if step.kind in MASKS:
            self._mask(step)
        elif tree >= 0:
            directory = stat.S_ISDIR(os.fstat(tree).st_mode)
            _put(tree, self._mount_point(step.path, directory=directory))
            os.close(tree)

    def _mask(self, step: Step) -> None:
        try:
            target = kernel.open_path(step.path)
        except PermissionError:
            return  # out of reach for us, hence for the command, which has fewer privileges
        except FileNotFoundError:
            if self._is_own(_existing_parent(step.path)):
                return  # an empty base does not show it
            raise
        if step.path in self._needed:
            # Passable but not readable: a path below is granted again.
            mask = self._new_tmpfs("0111", NO_SUID | NO_DEV | NO_EXEC)
            _put(mask, target)
            return
        source = kernel.open_path(f"{MASK_SOURCE}/{step.kind}")
        mask = kernel.copy_tree(source)
        _put(mask, target)
        os.close(mask)
        os.close(source)

    def _seal(self) -> None:
        for tree in self._unsealed:
            kernel.set_attributes(tree, READ_ONLY)
            os.close(tree)

    def _mount_point(self, path: str, *, directory: bool) -> int:
        """The place for a tree; the mount point is created if the file system there is one of ours."""
        try:
            return kernel.open_path(path)
        except FileNotFoundError:
            self._make_parents(path)
        if directory:
            os.mkdir(path, _mode(os.path.dirname(path)))
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
        return kernel.open_path(path)

    def _make_parents(self, path: str) -> None:
        existing = _existing_parent(path)
        if not self._is_own(existing):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        missing = [parent for parent in _ancestors(path) if len(parent) > len(existing)]
        for parent in sorted(missing, key=len):
            os.mkdir(parent, _mode(existing))

    def _is_own(self, path: str) -> bool:
        return os.lstat(path).st_dev in self._own


def _show_resolver(find: Callable[[str], int]) -> None:
    from holdfast.sandbox.kernel import resolver  # already imported by the process that has such a plan

    with Stage("names"):
        resolver.show(NAME_SERVER, find)


def _copy_of(path: str, attributes: int) -> int:
    fd = kernel.open_path(path)
    try:
        tree = kernel.copy_tree(fd)
    finally:
        os.close(fd)
    kernel.set_attributes_below(tree, attributes)
    return tree


def _put(tree: int, target: int) -> None:
    kernel.put_tree(tree, target)
    os.close(target)


def _put_new(tree: int, path: str) -> None:
    """Mount a tree and close its descriptor."""
    _put(tree, kernel.open_path(path))
    os.close(tree)


def _new_masks() -> int:
    """An empty directory and an empty file without permissions, to be mounted over denied paths."""
    masks = kernel.new_filesystem("tmpfs", NO_SUID | NO_DEV | NO_EXEC, mode="0000")
    os.mkdir(StepKind.MASK_DIRECTORY, 0, dir_fd=masks)
    os.mknod(StepKind.MASK_FILE, stat.S_IFREG, dir_fd=masks)
    kernel.set_attributes(masks, READ_ONLY)
    return masks


def _mount_on_itself(path: str) -> None:
    fd = kernel.open_path(path)
    tree = kernel.copy_tree(fd)
    _put(tree, fd)
    os.close(tree)


def _become_root(tree: int, root: int) -> None:
    kernel.put_tree(tree, root)
    os.fchdir(tree)
    os.chroot(".")


def _ancestors(path: str) -> list[str]:
    """All directories above, the nearest first, without the root."""
    found = []
    while (path := os.path.dirname(path)) != "/":
        found.append(path)
    return found


def _existing_parent(path: str) -> str:
    return next((parent for parent in _ancestors(path) if os.path.lexists(parent)), "/")


def _mode(path: str) -> int:
    """The permissions of a directory: a directory made below a passable mask gets the same."""
    return stat.S_IMODE(os.lstat(path).st_mode)
