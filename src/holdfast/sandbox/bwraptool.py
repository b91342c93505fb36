"""The system's bubblewrap: where it is, and whether it can do what we need."""

import errno


class Unusable(Exception):
    """There is none, or it is too old; `stage` is the fingerprint."""

    def __init__(self, stage: str, code: int) -> None:
        super().__init__(stage)
        self.stage, self.errno = stage, code


def find(path: str) -> str:
    """The bubblewrap to use, from the directories of a PATH.

    Raises:
        Unusable: there is none.
    """
    raise Unusable("bwrap.missing", errno.ENOENT)
