"""A list on a terminal of 80 columns: ids are whole, reasons are there."""

import io

from rich.console import Console

from holdfast.commands import output

COLUMNS = ("task", "status", "prio", "profile", "title", "why")
WHY = (
    "waits for t_0123456789ab (running), which has run for two hours and has one attempt left after this one"
)
ROWS = [
    (
        "t_1f2e3d4c5b6a",
        "waiting_system",
        "0",
        "codex",
        "Fix the flaky test of the parser in both builds",
        WHY,
    ),
    ("t_2a3b4c5d6e7f", "done", "3", "script", "Say hello", ""),
]


def shown(width: int) -> list[str]:
    out = io.StringIO()
    output.show_table(COLUMNS, ROWS, Console(file=out, width=width, color_system=None))
    return out.getvalue().splitlines()


def test_at_80_columns_ids_are_whole_and_reasons_are_below() -> None:
    lines = shown(80)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["task", "status", "prio", "profile", "title"]
    assert [line.split()[0] for line in lines if line.startswith("t_")] == [row[0] for row in ROWS]
    assert WHY in " ".join(line.strip() for line in lines if line.startswith("    ") and "t_1f" not in line)
    assert lines[-1].split() == ["t_2a3b4c5d6e7f", "done", "3", "script", "Say", "hello"]


def test_a_wide_terminal_has_everything_side_by_side() -> None:
    lines = shown(220)
    assert len(lines) == 1 + len(ROWS)
    assert lines[0].split()[-1] == "why"
    assert WHY in lines[1]


def test_a_title_does_not_command_the_terminal() -> None:
    out = io.StringIO()
    output.show_table(COLUMNS, [("t_1", "ready", "0", "", "a\x1b[2Jb", "")], Console(file=out, width=80))
    assert "\x1b[2J" not in out.getvalue()
