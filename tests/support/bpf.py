"""Runs a seccomp program on one system call, as the kernel would."""

import struct
from collections.abc import Sequence
from typing import Final

_INSTRUCTION: Final = struct.Struct("<HBBI")
_DATA: Final = struct.Struct("<iIQ6Q")  # struct seccomp_data
_MAX_STEPS: Final = 4096  # BPF_MAXINSNS; programs only jump forwards
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


def verdict(program: bytes, number: int, args: Sequence[int] = (), *, arch: int) -> int:
    """What the program returns; raises IndexError when it runs off its end."""
    code = list(_INSTRUCTION.iter_unpack(program))
    signed = number - (1 << 32) if number >= 1 << 31 else number
    data = _DATA.pack(signed, arch, 0, *[*args, 0, 0, 0, 0, 0, 0][:6])
    accumulator, at = 0, 0
    for _ in range(_MAX_STEPS):
        op, if_true, if_false, operand = code[at]
        at += 1
        if op == RETURN:
            return int(operand)
        if op == LOAD:
            assert operand % 4 == 0, "the kernel refuses unaligned loads"
            (accumulator,) = struct.unpack_from("<I", data, operand)
            continue
        holds = {
            EQUAL: accumulator == operand,
            AT_LEAST: accumulator >= operand,
            ANY_BIT: bool(accumulator & operand),
        }[op]
        at += if_true if holds else if_false
    raise AssertionError("a program can not be that long")
