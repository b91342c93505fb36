"""Where a user's workers, board and keys are kept."""

import os

from holdfast.annotations import TYPE_CHECKING, Mapping

if TYPE_CHECKING:
    from pathlib import Path


def state_directory(environ: Mapping[str, str] = os.environ) -> str:
    """The home unless $HOLDFAST_HOME names another: below $XDG_STATE_HOME or ~/.local/state."""
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "holdfast")


def default_home(environ: Mapping[str, str] = os.environ) -> "Path":
    """Unless told otherwise: $HOLDFAST_HOME, or below $XDG_STATE_HOME."""
    from pathlib import Path  # no confined start waits for it

    return Path(environ.get("HOLDFAST_HOME") or state_directory(environ))
