"""Everything that is tried from inside a sandbox, to know that it holds and does not hinder. Pure module."""

from typing import Final

from holdfast.doctor.attempt import Attempt, Guarantee
from holdfast.doctor.everyday import EVERYDAY
from holdfast.doctor.fileattempts import FILES
from holdfast.doctor.kernelattempts import KERNEL
from holdfast.doctor.networkattempts import NETWORK
from holdfast.doctor.processattempts import PROCESSES

ESCAPES: Final = (*FILES, *PROCESSES, *NETWORK, *KERNEL)
ATTEMPTS: Final[tuple[Attempt, ...]] = (*ESCAPES, *EVERYDAY)

__all__ = ["ATTEMPTS", "ESCAPES", "EVERYDAY", "Attempt", "Guarantee"]
