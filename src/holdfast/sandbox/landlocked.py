"""A command confined by Landlock and seccomp alone, in the launcher's forked child."""

import errno
import os
from typing import NoReturn

from holdfast.sandbox.confined import Command, report_failure
from holdfast.sandbox.kernel import SetupFailed
from holdfast.sandbox.plan import Plan


def run(plan: Plan, command: Command, *, parent: int, status_fd: int, degraded: bool) -> NoReturn:
    """Be the confined command. To be called right after a fork, in the child of `parent`."""
    report_failure(status_fd, SetupFailed("landlock", errno.ENOSYS))
    os._exit(125)
