"""The real Hermes Agent, where `python -m tools.get_hermes` put it."""

import os
from pathlib import Path

import pytest

from tools.get_hermes import VERSION, installed


def requires_hermes() -> Path:
    """Its interpreter; without it the test is skipped, and in CI it fails."""
    found = installed()
    if found is not None and found.exists():
        return found
    reason = f"NO HERMES: its boards are NOT tested; `python -m tools.get_hermes` installs {VERSION}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
