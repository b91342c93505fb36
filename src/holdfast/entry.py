"""The entry point of the program. Frequent commands that users wait for do not load the rest first."""

import atexit
import errno
import gc
import io
import os
import sys

from holdfast import __version__

TYPE_CHECKING = False  # to a type checker it means True; `typing` takes longer to load than --version
if TYPE_CHECKING:
    from typing import TextIO

    from _typeshed import ReadableBuffer

_NOT_WRITTEN = 74  # the exit code of OutputLost; `errors` is loaded only for an error
VERSION_LINE = f"holdfast {__version__}"


def main() -> None:
    """Run the program."""
    args = sys.argv[1:]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if args[:1] == ["exec"] and "_HOLDFAST_COMPLETE" not in os.environ:
        gc.disable()  # until the command runs: loaded modules hold no garbage
        from holdfast.commands import options

        parsed = options.parse((*options.LIMITS, *options.EXEC), args[1:])
        if parsed is not None:
            given, command = parsed
            limits = options.gather(given)
            code = options.execute(limits, command, **given)  # type: ignore[arg-type]
            # All output is written. Finalizing the interpreter takes longer than a small command.
            os._exit(code)
        gc.enable()
    if args[:1] == ["serve"]:
        gc.disable()  # until it has its address
        if _serve(args[1:]):
            return
        gc.enable()
    if args[:2] == ["mcp", "--run"] and len(args) == 3:  # every worker keeps one of these running
        _report(args[2])
        return
    sys.stdout = _guard(sys.stdout)
    status: list[int] = []
    atexit.register(_leave, status)  # registered first, so called last
    try:
        if args == ["--version"]:
            sys.stdout.write(f"{VERSION_LINE}\n")
            sys.stdout.flush()
            return
        gc.set_threshold(20_000)  # loaded modules are no garbage, and a collection takes a tenth of a command
        from holdfast.cli import cli

        cli(prog_name="holdfast")
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            status.append(exc.code or 0)
        raise
    except Exception as exc:
        status.append(_explain(exc, args))
        sys.exit(status[0])


# --- errors outside of commands: streams that are closed or full, words that are not text, files of the host


class _Output(io.FileIO):
    """A file that raises an error of ours for a failed write, which every command reports in one line."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as exc:
            if exc.errno in (errno.EPIPE, errno.EAGAIN):
                raise
            from holdfast.errors import OutputLost

            raise OutputLost(f"cannot write standard output: {exc.strerror}") from exc


def _guard(stream: "TextIO") -> "TextIO":
    """Return the stream over such a file; a stream that was replaced is kept."""
    if not isinstance(stream, io.TextIOWrapper) or stream is not sys.__stdout__:
        return stream
    raw = _Output(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _open_closed_streams() -> None:
    """Replace standard streams that the caller closed by empty ones, so no other file gets their numbers."""
    from holdfast.local.relay import occupy_standard_descriptors

    occupy_standard_descriptors()
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(fd, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115 - kept
            setattr(sys, name, stream)


def _explain(exc: Exception, args: list[str]) -> int:
    """Report the error in one line, and return the exit code.

    Raises:
        Exception: the same one, if it is a bug of ours.
    """
    if isinstance(exc, BrokenPipeError):  # the reader has closed the pipe
        return 1
    from holdfast.errors import HoldfastError, OperationFailed, UsageError

    told: HoldfastError | None = exc if isinstance(exc, HoldfastError) else None
    if isinstance(exc, UnicodeEncodeError):
        wrong = next((word for word in args if not _is_text(word)), None)
        named = next((name for name in os.environ if not _is_text(os.environ[name])), None)
        if wrong is not None:
            shown = os.fsencode(wrong).decode("utf-8", "backslashreplace")
            told = UsageError(f"{shown} is not UTF-8")
        elif named is not None:
            told = UsageError(f"the environment variable {named} is not UTF-8")
    elif isinstance(exc, FileNotFoundError) and not _has_directory():
        told = UsageError("the current directory does not exist any more", remedy="cd to another one")
    elif isinstance(exc, OSError) and isinstance(exc.filename, str | bytes):
        told = OperationFailed(f"{os.fsdecode(exc.filename)}: {exc.strerror}")
    if told is None:
        raise exc
    from holdfast.commands.output import fail, refuse

    try:
        if "--json" in args and exc is not told:
            refuse(told, as_json=True)
        fail(told)
    except SystemExit as end:
        return int(end.code or 0)


def _has_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _leave(status: list[int]) -> None:
    """Exit at once, with this status if it is known: threads are joined, other exit handlers have run.

    Only the finalization of the interpreter is skipped, which takes a tenth of most commands.
    """
    if not status:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status[0] = status[0] or 1
    except (OSError, ValueError, AttributeError):
        return  # the interpreter reports it
    except Exception as exc:
        if status[0] != _NOT_WRITTEN:  # otherwise it was reported
            status[0] = _explain(exc, [])
    os._exit(status[0] & 0xFF)


def _serve(args: list[str]) -> bool:
    """Serve until the end; False if click must parse these arguments."""
    from holdfast.commands import options
    from holdfast.commands.daemons import serving

    parsed = options.parse(serving.SERVE, args)
    if parsed is None or parsed[1] or "_HOLDFAST_COMPLETE" in os.environ:
        return False
    from holdfast.errors import HoldfastError

    try:
        serving.run(**parsed[0])  # type: ignore[arg-type]
    except HoldfastError as exc:
        from holdfast.commands.output import fail

        fail(exc)
    return True


def _report(run_file: str) -> None:
    """Serve the MCP tools of the worker with this run; without click, which takes a sixth of the memory."""
    from holdfast.errors import HoldfastError
    from holdfast.handoff.sender import VARIABLE, Sender
    from holdfast.mcp.reports import Reporting
    from holdfast.mcp.server import serve

    try:
        serve(Reporting(Sender.find(environ={VARIABLE: run_file})))
    except KeyboardInterrupt:
        pass
    except HoldfastError as exc:
        from holdfast.commands.output import fail

        fail(exc)
