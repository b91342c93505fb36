"""What follows from a look at the processes of a worker; the looks themselves are in tests/integration."""

from pathlib import Path

from holdfast.agents.evidence.evidence import Claim, Obstacle, Obstructed, Unread, Want, Wants, Work, Working
from holdfast.agents.worker.procwatch import (
    MAX_PROCESSES,
    ObservedProcess,
    OomKills,
    ProcessSnapshot,
    TerminalSettings,
    Waiter,
    evidence,
)
from holdfast.sandbox.kernel.cgroup import Hierarchies
from tests.support.rows import every_row

RAW, LINES, SECRET = (
    TerminalSettings(False, False, 0),
    TerminalSettings(True, True, 0),
    TerminalSettings(True, False, 0),
)


def process(
    name: str, pid: int = 10, *, state: str = "S", session: int = 10, behind: int = 0
) -> ObservedProcess:
    """`behind` is the group in the foreground of the terminal that it has."""
    return ObservedProcess(pid, name, state, 1, pid, session, 34816 if behind else 0, behind or -1)


def look(
    main: ObservedProcess,
    *others: ObservedProcess,
    waits: Waiter | None = None,
    terminal: TerminalSettings | None = RAW,
) -> ProcessSnapshot:
    return ProcessSnapshot((main, *others), main, (waits,) if waits else (), terminal)


CLI, SHELL, BWRAP = process("codex"), process("bash"), process("bwrap", 9)


@every_row(
    ("seen", "full_screen", "claims"),
    [
        (ProcessSnapshot(), True, []),
        (look(CLI, waits=Waiter(CLI, True)), True, []),  # full-screen programs always do
        (look(CLI, waits=Waiter(CLI, True), terminal=LINES), True, [Wants(Want.PROMPT)]),
        (look(SHELL, waits=Waiter(SHELL, True)), False, [Wants(Want.PROMPT)]),
        (look(SHELL, terminal=LINES), False, [Unread()]),
        (look(SHELL, process("make", 11, session=11), terminal=LINES), False, [Unread(), Working(Work.TOOL)]),
        (look(SHELL, terminal=LINES), True, []),  # it may read the keyboard in turns
        (look(SHELL, terminal=RAW), False, []),  # likewise
        (look(SHELL, terminal=None), False, []),
        (look(SHELL, terminal=SECRET), False, [Wants(Want.PASSWORD)]),
        (
            ProcessSnapshot((BWRAP, SHELL), SHELL, (), LINES, (BWRAP,)),
            False,
            [Unread()],
        ),  # it is not the worker
        (look(SHELL, terminal=LINES)._replace(hidden=(SHELL,)), False, []),  # it may be the one that reads
        (
            look(SHELL, process("cat", 11, state="T", behind=10), terminal=LINES),
            False,
            [],
        ),  # it wanted to, behind others
        (
            look(SHELL, *[process("x", pid) for pid in range(11, 11 + MAX_PROCESSES)], terminal=LINES),
            False,
            [],
        ),
        (look(process("codex", state="t")), True, []),  # a tracer holds it for a moment
        (look(CLI, waits=Waiter(CLI, False)), True, [Wants(Want.STDIN_EOF)]),
        (look(CLI, waits=Waiter(process("less", 11), True)), True, [Wants(Want.PAGER)]),
        (look(CLI, waits=Waiter(process("vim", 11), True)), True, [Wants(Want.EDITOR)]),
        (look(CLI, waits=Waiter(process("node", 11), True)), True, []),  # it starts itself once more
        (look(CLI, waits=Waiter(process("ssh", 11), True), terminal=SECRET), True, [Wants(Want.PASSWORD)]),
        (look(CLI, terminal=SECRET), True, [Wants(Want.PASSWORD)]),
        (look(CLI, process("make", 11, session=11)), True, [Working(Work.TOOL)]),
        (look(CLI, process("server", 11)), True, []),
        (look(CLI, process("codex", 11, session=11)), True, []),
        (look(CLI, process("make", 11, session=11, state="Z")), True, []),
        (look(process("codex", state="T")), True, [Obstructed(Obstacle.STOPPED, "codex (10) is stopped")]),
        (  # the program behind its launcher
            look(process("node"), process("codex", 11, state="T")),
            True,
            [Obstructed(Obstacle.STOPPED, "codex (11) is stopped")],
        ),
        (  # all that it runs; if only some of it is, work goes on
            look(CLI, process("make", 11, session=11, state="T")),
            True,
            [Obstructed(Obstacle.STOPPED, "make (11) is stopped")],
        ),
        (
            look(CLI, process("make", 11, session=11, state="T"), process("cc", 12, session=12)),
            True,
            [Working(Work.TOOL)],
        ),
    ],
)
def test_a_look_says_what_it_proves(seen: ProcessSnapshot, full_screen: bool, claims: list[Claim]) -> None:
    found = evidence(seen, 3.0, full_screen=full_screen)
    assert [item.claim for item in found] == claims
    assert all(item.at == 3.0 and item.seen for item in found)


def test_a_kill_for_lack_of_memory_counts_only_in_the_group_of_workers(tmp_path: Path) -> None:
    own, other = tmp_path / "memory.oom_control", tmp_path / "holdfast-other"
    own.write_text("oom_kill 2\n", "utf-8")
    kills = OomKills(0.0, Hierarchies({"memory": str(tmp_path)}))
    other.mkdir()
    (other / "memory.oom_control").write_text("oom_kill 1\n", "utf-8")  # a command with a limit of its own
    assert not kills.since_a_moment_ago()
    own.write_text("oom_kill 3\n", "utf-8")
    assert kills.since_a_moment_ago()
    kills.look(1000.0)
    assert not kills.since_a_moment_ago()
