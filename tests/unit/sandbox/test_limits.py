"""What was used and what may be: which limit was reached, in which words, and how often to look."""

import pytest

from holdfast.sandbox import limits as rules
from holdfast.sandbox.limits import Limits, LimitUsage, Means, Reached
from tests.support.rows import every_row

G = 1 << 30
ALL = Limits(2 * G, 200, 1.5, 5 * G, 1024, 600.0)


@every_row(
    ("used", "elapsed_s", "message"),
    [
        (
            LimitUsage(oom_kills=1, memory_peak=2 * G),
            1.0,
            "killed: memory limit 2 GiB reached (peak 2.0 GiB)",
        ),
        (LimitUsage(memory=3 * G), 1.0, "killed: memory limit 2 GiB reached (peak 3.0 GiB)"),
        (LimitUsage(pids=203), 1.0, "killed: process limit of 200 reached (203 seen)"),
        (LimitUsage(disk=5 * G + 1), 1.0, "killed: disk limit 5 GiB reached (5.0 GiB written)"),
        (LimitUsage(), 600.0, "killed: time limit of 10 min reached"),
    ],
)
def test_what_ends_a_command_and_in_which_words(used: LimitUsage, elapsed_s: float, message: str) -> None:
    reached = rules.find_breach(ALL, used, elapsed_s=elapsed_s)
    assert reached is not None
    assert (reached.message, reached.killed) == (message, True)
    assert rules.find_breach(Limits(), used, elapsed_s=elapsed_s) is None


def test_at_its_limits_it_goes_on() -> None:
    used = LimitUsage(memory=2 * G, pids=200, disk=5 * G)
    assert rules.find_breach(ALL, used, elapsed_s=599.9) is None


@every_row(
    ("used", "code", "message"),
    [
        (
            LimitUsage(oom_kills=1, memory_peak=2 * G),
            137,
            "killed: memory limit 2 GiB reached (peak 2.0 GiB)",
        ),
        (
            LimitUsage(oom_kills=2, memory_peak=2 * G),
            0,
            "memory limit 2 GiB reached: the kernel ended 2 of its processes (peak 2.0 GiB)",
        ),
        (LimitUsage(), 153, "killed: disk limit 5 GiB reached (5.0 GiB written)"),
        (
            LimitUsage(pids_peak=200, forks_refused=37),
            1,
            "process limit of 200 reached: further ones were refused 37 times",
        ),
        (
            LimitUsage(pids_peak=200, forks_refused=1),
            1,
            "process limit of 200 reached: further ones were refused once",
        ),
        (LimitUsage(pids_peak=200), 1, "process limit of 200 reached: further ones were refused"),
    ],
)
def test_what_is_said_of_a_command_that_ended_by_itself(used: LimitUsage, code: int, message: str) -> None:
    reached = rules.judge_end(ALL, used, code=code)
    assert reached is not None
    assert reached.message == message


@every_row(
    ("used", "code"),
    [
        (LimitUsage(), 0),
        (LimitUsage(), 137),
        (LimitUsage(pids_peak=200, forks_refused=0), 1),
        (LimitUsage(pids_peak=199), 1),
    ],
)
def test_nothing_is_said_of_a_command_that_reached_nothing(used: LimitUsage, code: int) -> None:
    assert rules.judge_end(ALL, used, code=code) is None


def test_the_exit_code_is_the_trades() -> None:
    assert rules.exit_code(None, 3) == 3
    assert rules.exit_code(Reached("timeout", 1, 1, killed=True), 0) == 124
    assert rules.exit_code(Reached("memory", 1, 1, killed=True), 1) == 137
    assert rules.exit_code(Reached("pids", 1, 1, killed=False), 2) == 2


def test_what_travels_arrives() -> None:
    for run in (None, rules.SHARED, 7):
        assert rules.decode(rules.encode(ALL, run)) == (ALL, run)
    assert rules.decode(rules.encode(Limits(timeout_s=0.1))) == (Limits(timeout_s=0.1), None)
    assert rules.encode(Limits()) == b""
    assert rules.decode(b"") == (Limits(), None)
    reached = Reached("memory", 1 << 50, (1 << 50) + 1, killed=True, count=10**9)
    assert rules.decode_reached(rules.encode_reached(reached)) == reached
    assert len(rules.encode_reached(reached)) <= 64
    assert rules.decode_reached("") is None
    means = dict.fromkeys(rules.NAMES, Means.SAMPLED)
    assert rules.decode_means(rules.encode_means(means)) == means
    assert rules.encode_means({}) == ""


def test_a_word_of_limits_fits_beside_all_that_can_be_weaker() -> None:
    """An event has 64 bytes for both."""
    word = rules.encode_means(dict.fromkeys(rules.NAMES, Means.SAMPLED))
    assert len(f"landlock,proc,loopback,{word}") <= 64


def test_who_holds_a_limit_is_said_and_what_is_weaker() -> None:
    held, weaker = rules.tell_means({"memory": Means.V2, "open_files": Means.RLIMIT})
    assert (held, weaker) == (("memory: cgroup v2", "open-files: rlimit"), ())
    held, weaker = rules.tell_means({"memory": Means.SAMPLED, "cpus": Means.AFFINITY})
    assert held == ("memory: sampled", "cpus: processor affinity")
    assert [text.partition(":")[0] for text in weaker] == ["memory", "processors"]
    assert "every 20 to 200 ms" in weaker[0]


def test_it_is_looked_at_as_soon_as_the_rest_could_be_used_up() -> None:
    memory = frozenset({"memory"})
    small = Limits(memory=64 << 20)
    assert rules.look_again_s(ALL, LimitUsage(), frozenset(), elapsed_s=0) == rules.HELD_S
    assert rules.look_again_s(ALL, LimitUsage(), memory, elapsed_s=0) == rules.LATEST_S
    assert rules.look_again_s(small, LimitUsage(), memory, elapsed_s=0) == rules.SOONEST_S
    near = rules.look_again_s(ALL, LimitUsage(memory=2 * G - (400 << 20)), memory, elapsed_s=0)
    assert rules.SOONEST_S < near < rules.LATEST_S
    assert rules.look_again_s(ALL, LimitUsage(), frozenset(), elapsed_s=599.95) == pytest.approx(0.05)


def test_those_that_are_given_win_over_those_of_a_profile() -> None:
    assert Limits(pids=5).over(Limits(pids=9, cpus=2.0)) == Limits(pids=5, cpus=2.0)


@every_row("wrong", [{"memory": 1}, {"pids": 0}, {"cpus": 0.0}, {"open_files": 3}, {"timeout_s": 0.0}])
def test_a_limit_under_which_nothing_could_start_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least"):
        Limits(**wrong)  # type: ignore[arg-type]
