"""Where a user's workers, board and keys are kept."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Unless told otherwise: $HOLDFAST_HOME, or below $XDG_STATE_HOME."""
    if environ.get("HOLDFAST_HOME"):
        return Path(environ["HOLDFAST_HOME"])
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "holdfast"
