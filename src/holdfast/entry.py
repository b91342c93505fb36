"""Where the program begins. What is asked for most, and waited for, does not load the rest first."""

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

_NOT_WRITTEN = 74  # of OutputLost; `errors` is loaded when there is one
VERSION_LINE = f"holdfast {__version__}"


def main() -> None:
    """Entry point."""
    args = sys.argv[1:]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if args[:1] == ["exec"] and "_HOLDFAST_COMPLETE" not in os.environ:
        gc.disable()  # until the command runs: there is no garbage in what is loaded
        from holdfast.commands import options

        parsed = options.parse((*options.LIMITS, *options.EXEC), args[1:])
        if parsed is not None:
            given, command = parsed
            limits = options.gather(given)
            code = options.execute(limits, command, **given)  # type: ignore[arg-type]
            # Everything is written. Taking an interpreter apart costs more than a small command.
            os._exit(code)
        gc.enable()
    if args[:1] == ["serve"]:
        gc.disable()  # until it has its address
        if _serve(args[1:]):
            return
        gc.enable()
    if args[:2] == ["mcp", "--run"] and len(args) == 3:  # every worker has one of these, for all its life
        _report(args[2])
        return
    sys.stdout = _guard(sys.stdout)
    status: list[int] = []
    atexit.register(_leave, status)  # the first to be registered is the last to be called
    try:
        if args == ["--version"]:
            sys.stdout.write(f"{VERSION_LINE}\n")
            sys.stdout.flush()
            return
        gc.set_threshold(
            20_000
        )  # what is loaded is no garbage, and to look for some takes a tenth of a command
        from holdfast.cli import cli

        cli(prog_name="holdfast")
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            status.append(exc.code or 0)
        raise
    except Exception as exc:
        status.append(_explain(exc, args))
        sys.exit(status[0])


# --- what no command foresees: streams that are closed or full, words that are not text, files of the host


class _Output(io.FileIO):
    """A file that says what is wrong with it in an error of ours, which every command tells in one line."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as exc:
            if exc.errno in (errno.EPIPE, errno.EAGAIN):
                raise
            from holdfast.errors import OutputLost

            raise OutputLost(f"cannot write standard output: {exc.strerror}") from exc


def _guard(stream: "TextIO") -> "TextIO":
    """The same stream over such a file; whatever somebody put in its place stays."""
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
    """A stream that the caller closed is an empty one, and nothing else that is opened takes its number."""
    from holdfast.local.relay import occupy_standard_descriptors

    occupy_standard_descriptors()
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(fd, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115 - kept
            setattr(sys, name, stream)


def _explain(exc: Exception, args: list[str]) -> int:
    """Say in one line what is wrong, and return the exit code.

    Raises:
        Exception: the same one, if it is a mistake of ours.
    """
    if isinstance(exc, BrokenPipeError):  # whoever read has enough
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
    """End at once, with this status if it is known: threads are joined, everything else is tidied up.

    What is left out is to take the interpreter apart, which is a tenth of most commands.
    """
    if not status:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status[0] = status[0] or 1
    except (OSError, ValueError, AttributeError):
        return  # the interpreter says so
    except Exception as exc:
        if status[0] != _NOT_WRITTEN:  # otherwise it has been said
            status[0] = _explain(exc, [])
    os._exit(status[0] & 0xFF)


def _serve(args: list[str]) -> bool:
    """Serve until the end; False if these words are for click."""
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
    """Serve the tools of the worker whose run this is; the command line's parser is a sixth of its memory."""
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
