"""How a worker on another machine reports to somebody here."""

import msgspec


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """Of a worker on another machine that reports to somebody here: what lies beside its work, there as here.

    `folder` is in its directory here: what is in there goes along, and its outbox gets what the worker says.
    `grant` is what the worker finds there as run.json, whose path it is told by `variable`.
    """

    folder: str
    grant: str
    variable: str
    reports: bool = True  # it is expected to say what became of its task, and needs Holdfast for that

    def __repr__(self) -> str:
        return f"Handover({self.folder!r})"  # logs and tracebacks show no token
