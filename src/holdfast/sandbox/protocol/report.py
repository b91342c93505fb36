"""What the process around a command says on its status pipe before the command runs.

Words that end with a NUL. A set-up that failed says where, one that came about says what came out weaker.
Our own backend says that the command runs, so that one that was killed on the way is not taken for it, and
nobody need wait for the end of the pipe. A job is forked before it becomes the command: there the word is
that it begins, and a failure after it is what counts. The other backends have no process that could say so:
there the pipe, which is closed by exec, ends without a failure.
"""

from holdfast.annotations import Final, Iterable, NamedTuple
from holdfast.sandbox.kernel.kernel import StageFailed

MAX_REPORT: Final = 8192  # a few words and one path
_FAILED, _WEAKENED, _RUNS, _BEGINS = "failed", "weakened", "runs", "begins"
_LAST: Final = f"{_RUNS}\0".encode()


class StartReport(NamedTuple):
    """What the status pipe said until its end."""

    weakened: tuple[str, ...] = ()
    failure: StageFailed | None = None
    runs: bool = False  # the command does, as the process around it said


def encode_report(
    weakened: Iterable[str] = (),
    *,
    failure: StageFailed | None = None,
    runs: bool = False,
    begins: bool = False,
) -> bytes:
    """What to write to the status pipe; nothing if there is nothing to say."""
    fields = [field for word in weakened for field in (_WEAKENED, word)]
    if failure is not None:
        fields += [_FAILED, failure.stage, str(failure.errno), failure.path]
    elif runs or begins:
        fields.append(_RUNS if runs else _BEGINS)
    return "".join(f"{field}\0" for field in fields).encode("utf-8", "surrogateescape")


def is_complete(data: bytes) -> bool:
    """Is this all that counts, although the pipe may not have ended?"""
    return data.endswith(_LAST)


def decode_report(data: bytes) -> StartReport:
    """The report in what was read from the status pipe until its end.

    Raises:
        ValueError: these bytes are not a report.
    """
    fields = iter(data.decode("utf-8", "surrogateescape").split("\0")[:-1])
    weakened: list[str] = []
    runs = False
    for kind in fields:
        if kind == _WEAKENED:
            weakened.append(next(fields, ""))
        elif kind == _FAILED:
            stage, code, path = next(fields, ""), next(fields, ""), next(fields, "")
            return StartReport(tuple(weakened), StageFailed(stage, int(code), path))
        elif kind in (_RUNS, _BEGINS):
            runs = True
        else:
            raise ValueError("not a report")
    return StartReport(tuple(weakened), runs=runs)
