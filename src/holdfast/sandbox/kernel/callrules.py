"""System calls that namespaces and mounts would make harmless, for a filter without them. Pure module.

Without namespaces a command shares with the host everything that has no path: System V memory, message
queues, and the processes of its user, which some calls reach without a Landlock check. Without mounts of its
own it owns the same files as the user: Landlock does not guard their modes and attributes. Calls that
everyday work needs are allowed (changing a file's mode, owner and times), and declared.
"""

import errno

from holdfast.light import Final, value


@value
class CallRule:
    """When to refuse a call. Arguments are given by position; only their lower halves are compared."""

    x86_64: int | None
    aarch64: int | None
    unless: tuple[tuple[int, tuple[int, ...]], ...] = ()  # allowed if each argument has one of its values
    bits: tuple[int, int] | None = None  # refused only if the argument has one of these bits
    value: tuple[int, int] | None = None  # refused only if the argument has this value
    errno: int = errno.EPERM

    def number(self, machine: str) -> int | None:
        """The call's number on this machine; None if it does not exist there."""
        return self.x86_64 if machine == "x86_64" else self.aarch64


_OF_ITSELF: Final = ((0, (0,)),)  # the process is the caller
_SET_ID_BITS: Final = 0o6000
_EVERYBODY: Final = 0xFFFFFFFF  # -1
_UNSUPPORTED: Final = errno.EOPNOTSUPP  # an answer that tools which copy attributes accept

ALONE: Final = (
    # System V memory, semaphores and queues of the host: get, use and control (which works without a get)
    *(
        CallRule(*numbers)
        for numbers in (
            *((29, 194), (30, 196), (31, 195), (64, 190), (65, 193), (66, 191)),
            *((68, 186), (69, 189), (70, 188), (71, 187), (220, 192)),
        )
    ),
    *(CallRule(240, 180), CallRule(241, 181)),  # mq_open, mq_unlink: not in a directory that Landlock knows
    # processes of the same user
    CallRule(62, 129, value=(0, _EVERYBODY)),  # kill
    CallRule(302, 261, unless=_OF_ITSELF),  # prlimit64: a limit of zero processor time kills
    CallRule(141, 140, unless=((0, (0, 1)), (1, (0,)))),  # setpriority: own process or group
    CallRule(251, 30, unless=((0, (1, 2)), (1, (0,)))),  # ioprio_set: likewise
    CallRule(203, 122, unless=_OF_ITSELF),  # sched_setaffinity
    CallRule(144, 119, unless=_OF_ITSELF),  # sched_setscheduler
    CallRule(142, 118, unless=_OF_ITSELF),  # sched_setparam
    CallRule(314, 274, unless=_OF_ITSELF),  # sched_setattr
    # files of the same user
    CallRule(90, None, bits=(1, _SET_ID_BITS)),  # chmod
    CallRule(91, 52, bits=(1, _SET_ID_BITS)),  # fchmod
    CallRule(268, 53, bits=(2, _SET_ID_BITS)),  # fchmodat
    CallRule(452, 452, bits=(2, _SET_ID_BITS)),  # fchmodat2
    *(
        CallRule(*numbers, errno=_UNSUPPORTED)
        for numbers in (
            *((188, 5), (189, 6), (190, 7), (463, 463)),  # setxattr and its kin
            *((197, 14), (198, 15), (199, 16), (466, 466)),  # removexattr and its kin
        )
    ),
    CallRule(469, 469, errno=errno.ENOSYS),  # file_setattr: the ioctls below by another name
    *(
        CallRule(16, 29, value=(1, request))
        for request in (
            0x40086602,  # FS_IOC_SETFLAGS
            0x40046602,  # FS_IOC32_SETFLAGS
            0x401C5820,  # FS_IOC_FSSETXATTR
            0x40806685,  # FS_IOC_ENABLE_VERITY: read-only for ever
            0x800C6613,  # FS_IOC_SET_ENCRYPTION_POLICY
        )
    ),
)
