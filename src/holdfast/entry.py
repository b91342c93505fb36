"""Where the program begins. What is asked for most, and waited for, does not load the rest first."""

import atexit
import gc
import os
import sys

from holdfast import __version__

VERSION_LINE = f"holdfast {__version__}"


def main() -> None:
    """Entry point."""
    args = sys.argv[1:]
    if args == ["--version"]:
        sys.stdout.write(f"{VERSION_LINE}\n")
        return
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
    gc.set_threshold(20_000)  # what is loaded is no garbage, and to look for some takes a tenth of a command
    status: list[int] = []
    atexit.register(_leave, status)  # the first to be registered is the last to be called
    from holdfast.cli import cli

    try:
        cli(prog_name="holdfast")
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            status.append(exc.code or 0)
        raise


def _leave(status: list[int]) -> None:
    """End at once, with this status if it is known: threads are joined, everything else is tidied up.

    What is left out is to take the interpreter apart, which is a tenth of most commands. What cannot be
    written is left to the interpreter, which says so.
    """
    if status:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return
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
