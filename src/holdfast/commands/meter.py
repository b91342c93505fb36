"""How far a copy is, as one line. Pure module."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
REDRAW_S: Final = 0.1  # faster than anybody reads


class Meter:
    """Feed it what is done and what time it is; it says what to show, and when nothing new is due."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._shown: float | None = None

    def line(self, done: int, total: int, now: float, *, width: int) -> str | None:
        """Less than `width` columns; None if the last one is still good."""
        if self._shown is not None and now - self._shown < REDRAW_S:
            return None
        self._shown = now
        share = done / total if total else 0.0
        seconds = now - self._began
        rate = done / seconds if seconds > 0 else 0.0
        left = _clock((total - done) / rate) if rate else "-:--"
        text = f"{share:4.0%}  {amount(done)} of {amount(total)}  {amount(rate)}/s  {left} left"
        room = width - len(text) - 5
        if room >= 10:
            filled = int(share * room)
            text = f"[{'#' * filled}{'-' * (room - filled)}]  {text}"
        return text[: max(0, width - 1)]


def amount(size: float) -> str:
    """Bytes for people."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(min(seconds, 359_999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
