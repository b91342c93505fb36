"""Lines for people → evidence: attempts, and errors that a line reports. Pure module."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.agents.catalog.agent import RetrySign
from holdfast.agents.catalog.failures import MAX_MESSAGE, of_line, of_message, of_status
from holdfast.agents.catalog.resets import announced
from holdfast.agents.evidence.evidence import (
    Claim,
    Evidence,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    Source,
    Trouble,
    Work,
)
from holdfast.agents.evidence.redaction import shown

LIMITS = (Failure.QUOTA, Failure.RATE_LIMIT)
MAX_CONTINUED = 8  # lines after an error that belong to it, up to an empty one: errors are wrapped


class Attempts:
    """Counts attempts for a CLI that does not number them, until its work goes on."""

    def __init__(self, signs: Sequence[RetrySign]) -> None:
        self._signs = signs
        self._made = 0

    def progress(self) -> None:
        self._made = 0

    def another(self, number: int | None = None) -> int:
        """The number of the attempt that begins: what the CLI says, or one more than the last."""
        self._made = self._made + 1 if number is None else number
        return self._made

    def read(self, text: str, at: float) -> Retrying | None:
        """What a line or message says of another attempt, or None."""
        for sign in self._signs:
            found = sign.pattern.search(text[:MAX_MESSAGE])
            if found is None:
                continue
            said = {name: value for name, value in found.groupdict().items() if value is not None}
            http = int(said["http"]) if "http" in said else None
            trouble = of_message(said.get("cause", ""))
            failure = (
                of_status(http, text) if http is not None else trouble.failure if trouble else sign.failure
            )
            return Retrying(
                attempt=self.another(int(said["attempt"]) if "attempt" in said else None),
                of=int(said["of"]) if "of" in said else None,
                failure=failure,
                http=http if http is not None else trouble.http if trouble else None,
                next_at=_next(said, at),
            )
        return None


def dated(claim: Claim, line: str) -> Claim:
    """The claim with the words that say when a limit is over, where the line has any."""
    if isinstance(claim, Trouble | Result) and claim.failure in LIMITS and (words := announced(line)):
        return replace(claim, announced=words)
    return claim


class TextLines:
    """Plain output. With `progress` a line means work, as on stdout; else it is a notice, as on stderr."""

    def __init__(
        self, retries: Sequence[RetrySign] = (), *, secrets: Sequence[str] = (), progress: bool = True
    ) -> None:
        self._attempts = Attempts(retries)
        self._secrets = tuple(secrets)
        self._progress = progress
        self._ready = not progress
        self._continued = 0
        self._last: Trouble | None = None

    def feed(self, line: str, at: float) -> list[Evidence]:
        seen = shown(line, self._secrets)
        if not seen:
            self._continued = 0
            return []
        claims: list[Claim] = []
        if not self._ready:
            self._ready = True
            claims.append(Ready())
        if (retrying := self._attempts.read(line, at)) is not None:
            if retrying.failure is None and self._continued and self._last is not None:
                retrying = replace(retrying, failure=self._last.failure, http=self._last.http)
            self._continued = MAX_CONTINUED
            claims.append(retrying)
        elif (trouble := of_line(line)) is not None:
            self._continued, self._last = MAX_CONTINUED, trouble
            claims.append(trouble)
        elif self._continued:
            self._continued -= 1
        elif self._progress:
            self._attempts.progress()
            claims.append(Progress(Work.STREAMING))
        return [Evidence(Source.TEXT, at, dated(claim, line), seen) for claim in claims]


def _next(said: dict[str, str], at: float) -> float | None:
    if "in_ms" in said:
        return at + float(said["in_ms"]) / 1000
    return at + float(said["in_s"]) if "in_s" in said else None
