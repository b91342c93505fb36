from dataclasses import replace

import pytest

from holdfast.dispatch.rules.pressure import (
    GIB,
    MAX_HERE,
    MAX_STALL,
    YOUNG_MEMORY,
    HostLimits,
    HostLoad,
    MemoryLoad,
    default_limits,
    find_holdup,
    group_memory,
    groups,
    least,
    load,
    machine_memory,
    most_here,
    quota,
    stall,
)
from tests.support.rows import every_row

IDLE = HostLoad(cpus=4.0, memory=MemoryLoad(16 * GIB, 8 * GIB), load=0.5, stall=0.0)
LIMITS = HostLimits(min_free=GIB, max_load=4.0)


def asked(facts: HostLoad, limits: HostLimits = LIMITS, *, running: int = 1, young: int = 0) -> str | None:
    return find_holdup(facts, limits, running=running, young=young)


def test_a_host_with_room_starts_workers() -> None:
    assert asked(IDLE) is None


def test_memory_that_would_not_be_left_holds_a_worker_back_even_the_first() -> None:
    short = replace(IDLE, memory=MemoryLoad(16 * GIB, GIB - 1))
    assert asked(short, running=0) == "less than 1 GiB of memory would be left"
    assert asked(short, HostLimits(min_free=GIB - 1)) is None


def test_what_young_workers_will_take_is_taken_already() -> None:
    tight = replace(IDLE, memory=MemoryLoad(16 * GIB, GIB + 2 * YOUNG_MEMORY))
    assert asked(tight, young=2) is None
    assert asked(tight, young=3) is not None


def test_a_host_that_thrashes_starts_nothing() -> None:
    assert asked(replace(IDLE, stall=MAX_STALL + 1)) is not None
    assert asked(replace(IDLE, stall=MAX_STALL)) is None


def test_load_holds_back_all_workers_but_the_first() -> None:
    busy = replace(IDLE, load=4.1)
    assert asked(busy) == "more than 4 processes want each CPU"
    assert asked(busy, running=0) is None
    assert asked(replace(IDLE, load=4.0)) is None


@pytest.mark.parametrize(
    "facts", [HostLoad(1.0), replace(IDLE, memory=MemoryLoad(1, 0), load=99.0, stall=99.0)]
)
def test_what_is_not_known_or_not_bounded_holds_nothing_back(facts: HostLoad) -> None:
    assert asked(facts, HostLimits()) is None
    assert asked(HostLoad(1.0)) is None


def test_words_do_not_change_with_what_is_measured() -> None:
    words = {asked(replace(IDLE, load=load)) for load in (5.0, 6.0, 7.0)}
    words |= {asked(replace(IDLE, memory=MemoryLoad(GIB, free))) for free in (0, 1, 2)}
    assert len(words) == 2


@every_row(
    ("facts", "most"),
    [
        (IDLE, 16),
        (replace(IDLE, cpus=0.5), 2),
        (replace(IDLE, cpus=0.1), 1),
        (replace(IDLE, memory=MemoryLoad(3 * GIB, 0)), 3),
        (replace(IDLE, memory=MemoryLoad(GIB // 2, 0)), 1),
        (HostLoad(cpus=2.0), 8),
        (HostLoad(cpus=512.0, memory=MemoryLoad(4096 * GIB, 0)), MAX_HERE),
    ],
)
def test_the_default_fits_the_host(facts: HostLoad, most: int) -> None:
    assert most_here(facts) == most


def test_a_small_machine_keeps_a_tenth_free() -> None:
    assert default_limits(IDLE).min_free == GIB
    assert default_limits(replace(IDLE, memory=MemoryLoad(2000, 0))).min_free == 200
    assert default_limits(HostLoad(1.0)).min_free is None


def test_memory_of_the_machine() -> None:
    text = "MemTotal:       24682416 kB\nMemFree:  1 kB\nMemAvailable:   23990472 kB\nHugePages_Total: 0\n"
    assert machine_memory(text) == MemoryLoad(24682416 << 10, 23990472 << 10)
    assert machine_memory("") is None


@every_row(
    ("bound", "used", "stat", "found"),
    [
        ("1000\n", "700\n", "anon 500\ninactive_file 200\nactive_file 9\n", MemoryLoad(1000, 500)),
        ("1000", "700", "inactive_file 1\ntotal_inactive_file 1\n", MemoryLoad(1000, 301)),
        ("1000", "1200", "", MemoryLoad(1000, 0)),
        ("1000", "100", "inactive_file 300\n", MemoryLoad(1000, 1000)),
        ("max\n", "700\n", "", None),
        ("9223372036854771712\n", "700", "", None),
        ("", "", "", None),
    ],
)
def test_memory_of_a_control_group(bound: str, used: str, stat: str, found: MemoryLoad | None) -> None:
    assert group_memory(bound, used, stat) == found


def test_the_tightest_bound_decides() -> None:
    assert least([MemoryLoad(10, 9), None, MemoryLoad(20, 3)]) == MemoryLoad(10, 3)
    assert least([None]) is None


@every_row(
    ("text", "cpus"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("-1 100000", None), ("0 0", None), ("", None)],
)
def test_cpus_of_a_control_group(text: str, cpus: float | None) -> None:
    assert quota(text) == cpus


def test_control_groups_of_both_versions() -> None:
    assert groups("4:memory:/a/b\n1:cpu,cpuacct:/c:d\n0::/e\nnonsense\n") == {
        **{"memory": "/a/b", "cpu": "/c:d", "cpuacct": "/c:d", "": "/e"}
    }


def test_load_is_of_each_cpu() -> None:
    assert load("6.00 5.0 4.0 2/101 23971\n", 4) == 1.5
    assert load("", 4) is None


def test_a_stall_is_one_of_everybody() -> None:
    some = "some avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"
    assert stall(some + "full avg10=8.50 avg60=2.33 avg300=1.53 total=6\n") == 8.5
    assert stall(some) is None
