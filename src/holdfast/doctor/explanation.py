"""An error text to its causes, in words. Pure module."""

from dataclasses import dataclass

from holdfast.sandbox import fingerprints

_UNKNOWN = (
    "nothing in this text is known to us",
    "  try: holdfast doctor, which tries every stage of a sandbox here",
    "  try: holdfast doctor explain with more of the log, from the first error on",
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """One cause, with the lines that show it; the surest first."""

    id: str
    layer: str
    cause: str
    remedy: str
    confidence: float
    evidence: tuple[str, ...]


def explain(text: str) -> list[Explanation]:
    """Every known cause that the text shows."""
    lines: dict[str, list[str]] = {}
    known = {}
    for match in fingerprints.match(text):
        known[match.fingerprint.id] = match.fingerprint
        lines.setdefault(match.fingerprint.id, []).append(match.line)
    found = [
        Explanation(id_, each.layer.value, each.cause, each.remedy, each.confidence, tuple(lines[id_]))
        for id_, each in known.items()
    ]
    return sorted(found, key=lambda one: -one.confidence)


def lines(found: list[Explanation]) -> list[str]:
    """For people."""
    if not found:
        return list(_UNKNOWN)
    told = []
    for one in found:
        told.append(f"{one.id} ({one.layer}, {one.confidence:.0%} sure): {one.cause}")
        told.append(
            f"  seen: {one.evidence[0]}"
            + (f" (and {len(one.evidence) - 1} more)" if len(one.evidence) > 1 else "")
        )
        told.append(f"  try: {one.remedy}")
    return told


def report(found: list[Explanation]) -> dict[str, object]:
    """For machines."""
    return {
        "schemaVersion": 1,
        "explanations": [
            {
                "fingerprint": one.id,
                "layer": one.layer,
                "cause": one.cause,
                "remedy": one.remedy,
                "confidence": one.confidence,
                "evidence": list(one.evidence),
            }
            for one in found
        ],
    }
