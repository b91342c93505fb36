"""Everything that is tried from inside a sandbox, to know that it holds and does not hinder. Pure module."""

from typing import Final

from holdfast.doctor.escape.attempt import Attempt, Guarantee
from holdfast.doctor.escape.everyday import EVERYDAY
from holdfast.doctor.escape.fileattempts import FILES
from holdfast.doctor.escape.kernelattempts import KERNEL
from holdfast.doctor.escape.networkattempts import NETWORK
from holdfast.doctor.escape.processattempts import PROCESSES

ESCAPES: Final = (*FILES, *PROCESSES, *NETWORK, *KERNEL)
ATTEMPTS: Final[tuple[Attempt, ...]] = (*ESCAPES, *EVERYDAY)

__all__ = ["ATTEMPTS", "ESCAPES", "EVERYDAY", "Attempt", "Guarantee"]
