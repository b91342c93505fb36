"""How long tests wait: one factor for all of them, measured once at the start of a run.

A wait here is a bound on something that normally comes at once, so it costs nothing to be generous; what is
written down is right for a quiet machine, and `patient` makes it right for this one.
"""

import os
import statistics
import subprocess
import sys
import time
from typing import Final

VARIABLE: Final = "HOLDFAST_TEST_PATIENCE"  # the factor, for every process of a test run
QUIET_S: Final = 0.010  # to start and end an interpreter on two cores with nothing else to do
MOST: Final = 10.0  # beyond that something is broken, and waiting longer only hides it
_SAMPLES: Final = 9


def measure() -> float:
    """How much slower than a quiet one this machine is now; never below 1."""
    return min(MOST, max(1.0, statistics.median(_start_s() for _ in range(_SAMPLES)) / QUIET_S))


def _start_s() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return time.monotonic() - begun


def patient(seconds: float) -> float:
    """This bound, on this machine."""
    return seconds * float(os.environ.get(VARIABLE, "1"))
