"""Draw docs/pictures/holdfast.svg: a terminal in which the real commands say what they really say.

python -m tools.pictures              run the commands, draw what they printed
python -m tools.pictures --out FILE   the same, elsewhere

A command is denied, then granted; then a board runs three tasks. Everything runs in a temporary home, whose
path is shortened to /home/you; nothing else is changed. Viewers that do not animate show all of it at once.
"""

import argparse
import html
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "pictures" / "holdfast.svg"
LIMIT_S: Final = 300.0  # for each command, on a busy machine
OUTSIDE: Final = "/var/tmp"  # noqa: S108 - not /tmp, which a confined command may write
LEFT: Final = "Ctrl-C ends this."  # the last line of the example, once its tasks have ended
DENIED: Final = "echo done > ~/notes/today"

COLUMNS: Final = 92
CHARACTER, LINE, MARGIN = 8.4, 20, 16  # pixels
TYPED_S, PRINTED_S, PAUSE_S, END_S = 0.6, 0.12, 1.2, 6.0


class Line(NamedTuple):
    text: str
    typed: bool = False


def record() -> list[Line]:
    """Run every command and keep what it printed."""
    top = Path(tempfile.mkdtemp(prefix="holdfast-picture-", dir=OUTSIDE))
    try:
        return list(_scenes(top))
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _scenes(top: Path) -> Iterator[Line]:
    home = top / "home" / "you"
    project = home / "project"
    (home / "notes").mkdir(parents=True)
    project.mkdir()
    _install(top / "bin")
    environment = {
        "PATH": f"{top / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "HOLDFAST_HOME": str(home / ".local/state/holdfast"),
        "COLUMNS": str(COLUMNS),
        "NO_COLOR": "1",
    }

    def shown(typed: str, printed: str) -> Iterator[Line]:
        yield Line(f"$ {typed}", typed=True)
        for line in printed.replace(str(top), "").splitlines():
            yield from map(Line, _wrapped(line))
        yield Line("")

    def run(typed: str) -> Iterator[Line]:
        done = subprocess.run(
            ["/bin/sh", "-c", typed], cwd=project, env=environment, check=False, timeout=LIMIT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        yield from shown(typed, done.stdout)

    yield from run(f"holdfast exec -- sh -c '{DENIED}'")
    yield from run(f"holdfast exec --allow-write ~/notes -- sh -c '{DENIED} && cat ~/notes/today'")
    outcomes = _example(
        [str(top / "bin/holdfast"), "up", "--demo", "--no-web", "--max-load", "0"], project, environment
    )
    yield from shown("holdfast up --demo", outcomes)
    yield from run("holdfast task list --board demo")


def _install(folder: Path) -> None:
    """A `holdfast` for the shell: this one."""
    folder.mkdir()
    program = folder / "holdfast"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m holdfast "$@"\n', "utf-8")
    program.chmod(0o755)


def _example(command: list[str], cwd: Path, environment: dict[str, str]) -> str:
    """What becomes of its three tasks; it is ended as a person ends it."""
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    bound = threading.Timer(LIMIT_S, process.kill)
    bound.start()
    try:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            if line.strip() == LEFT:
                break
        process.send_signal(signal.SIGINT)
        process.communicate()
    finally:
        bound.cancel()
    first = next(number for number, line in enumerate(lines) if line.startswith("t_"))
    return "".join(lines[first:-1]).rstrip()


def _wrapped(line: str) -> Iterator[str]:
    """As a terminal of that width would show it."""
    yield line[:COLUMNS]
    for start in range(COLUMNS, len(line), COLUMNS):
        yield line[start : start + COLUMNS]


# --- drawing


def draw(lines: list[Line]) -> str:
    """The text as an SVG; each line appears when its turn comes, and all of it again and again."""
    while lines and not lines[-1].text:
        lines = lines[:-1]
    times, now = [], PAUSE_S
    for line in lines:
        now += PAUSE_S + TYPED_S if line.typed else PRINTED_S
        times.append(now)
    whole = now + END_S
    width = int(COLUMNS * CHARACTER + 2 * MARGIN)
    height = (len(lines) + 1) * LINE + 2 * MARGIN
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + (number + 2) * LINE - 6}" class="{_colour(line)}" '
        f'xml:space="preserve">{html.escape(line.text)}'
        f'<animate attributeName="opacity" dur="{whole:.1f}s" repeatCount="indefinite" calcMode="discrete" '
        f'values="0;1" keyTimes="0;{when / whole:.4f}"/></text>'
        for number, (line, when) in enumerate(zip(lines, times, strict=True))
        if line.text
    ]
    dots = "".join(
        f'<circle cx="{MARGIN + 6 + 18 * n}" cy="{MARGIN}" r="5" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            "<title>A command is denied, then granted; a board runs three tasks</title>",
            "<!-- Made by `python -m tools.pictures` from what the commands printed; do not edit. -->",
            "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#c9d1d9}"
            ".typed{fill:#fff;font-weight:bold}.denied{fill:#ff7b72}.good{fill:#7ee787}"
            ".asks{fill:#e3b341}.hint{fill:#79c0ff}</style>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>',
            dots,
            *rows,
            "</svg>\n",
        ]
    )


def _colour(line: Line) -> str:
    text = line.text
    if line.typed:
        return "typed"
    for name, words in {
        "hint": ("to allow it:", "answer it:", "see what changed:", "see all of it:"),
        "denied": ("the sandbox denies", " failed ", "denied:"),
        "asks": ("waiting_human",),
        "good": (" done ", "done"),
    }.items():
        if any(word in text for word in words) and (
            name != "good" or text == "done" or text.startswith("t_")
        ):
            return name
    return "plain"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--out", type=Path, default=PICTURE)
    chosen = options.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(draw(record()), "utf-8")


if __name__ == "__main__":
    main()
