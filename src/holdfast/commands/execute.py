"""What `holdfast exec` does with its options: call, print. Whoever parsed them calls this."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.commands.options import ExecLimits
    from holdfast.outcome import Ending, Explained, Planned


def execute(
    limits: "ExecLimits",
    command: Sequence[str],
    where: str | None = None,
    explain: Sequence[str] = (),
    *,
    watch: bool = False,
    print_plan: bool = False,
    as_json: bool = False,
) -> int:
    """Run it, or say what would be done; returns the exit code."""
    from holdfast import outcome

    told: Ending | Planned | Explained
    try:
        if where is not None:
            from holdfast import remoterun

            remoterun.refuse_local_options(
                limits.local() | {"--watch": watch, "--print-plan": print_plan, "--explain": bool(explain)}
            )
            told = remoterun.execute(where, limits.wish(), command)
        else:
            told = _here(limits, command, explain, watch=watch, print_plan=print_plan)
    except HoldfastError as exc:
        told = outcome.failed(exc)
    stream = sys.stderr if isinstance(told, outcome.Ending) else sys.stdout
    for line in _lines(told, as_json=as_json):
        stream.write(f"{line}\n")
    stream.flush()
    return told.code


def _here(
    limits: "ExecLimits", command: Sequence[str], explain: Sequence[str], *, watch: bool, print_plan: bool
) -> "Ending | Planned | Explained":
    from holdfast import run

    wish = limits.wish(watch=watch)
    if print_plan:
        return run.plan(wish)
    return run.explain(wish, explain) if explain else run.execute(wish, command)


def _lines(told: "Ending | Planned | Explained", *, as_json: bool) -> list[str]:
    if not as_json:
        return told.lines()
    import json

    return [json.dumps(told.report())]
