"""Evidence in one line."""

from holdfast.agents.evidence.evidence import (
    Claim,
    Evidence,
    Failure,
    Ready,
    Result,
    Retrying,
    Source,
    Usage,
    Want,
    Wants,
)
from holdfast.agents.evidence.wording import in_words
from tests.support.rows import every_row


@every_row(
    ("claim", "words"),
    [
        (Ready(), "protocol Ready"),
        (
            Retrying(2, 5, Failure.AUTH, 401, 1.5),
            "protocol Retrying attempt=2 of=5 failure=auth http=401 next_at=1.5",
        ),
        (Wants(Want.DECISION, "rm it?"), "protocol Wants want=decision question='rm it?'"),
        (
            Result(ok=True, usage=Usage(1, 2, cost_usd=0.5)),
            "protocol Result ok=True "
            "usage=(input_tokens=1 output_tokens=2 cached_tokens=0 cost_usd=0.5 turns=0)",
        ),
        (Result(ok=False, refused=("Bash",)), "protocol Result ok=False refused=('Bash',)"),
    ],
)
def test_only_what_differs_from_the_defaults_is_said(claim: Claim, words: str) -> None:
    assert in_words(Evidence(Source.PROTOCOL, 0.0, claim)) == words
