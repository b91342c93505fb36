import msgspec
import pytest

from holdfast.agents.fleet.facts import MAX_CPUS, MAX_WORDS, EnvironmentFacts, follow_on, read_facts

GOOD = '{"findings": [{"id": "sandbox.landlock", "severity": "ok", "title": "landlock works"}]}'
MEMORY = "MemTotal:        2048 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n"


def doctor(*severities: str) -> str:
    rows = [{"id": f"sandbox.{n}", "severity": one, "title": f"t{n}"} for n, one in enumerate(severities)]
    return msgspec.json.encode({"schemaVersion": 1, "findings": rows}).decode()


def test_what_a_machine_says_of_itself_is_read() -> None:
    found = read_facts(f"8\n{MEMORY}--\n{GOOD}")
    assert (found.cpus, found.memory, found.free) == (8, 2 << 20, 1 << 20)
    assert (found.holdfast, found.unconfined, found.problems) == (True, "", [])


@pytest.mark.parametrize(
    "said", ["", "\n--\n", "many\n--\n[]", "8", "--\n{}", "9" * 4000, "1\n--\n\x1b]0;x\x07"]
)
def test_a_machine_that_says_nothing_sensible_is_only_unknown(said: str) -> None:
    found = read_facts(said)
    assert found.cpus <= MAX_CPUS
    assert (found.memory, found.unconfined, found.problems) == (0, "", [])


def test_its_doctor_decides_whether_it_can_confine() -> None:
    assert read_facts(f"1\n--\n{doctor('error', 'ok')}").unconfined == ""
    assert read_facts(f"1\n--\n{doctor('error', 'error')}").unconfined == "its doctor says: t0"


def test_what_it_says_is_bounded_and_harmless() -> None:
    rows = [{"id": "disk", "severity": "error", "title": "\x1b[2J" + "x" * 9999}] * 50
    found = read_facts("99999\n--\n" + msgspec.json.encode({"findings": rows}).decode())
    assert found.cpus == MAX_CPUS
    assert len(found.problems) == 5
    assert all(len(one) <= MAX_WORDS and "\x1b" not in one for one in found.problems)


def test_since_when_it_is_so_is_kept_and_what_is_known_of_it_too() -> None:
    first = EnvironmentFacts(at=10.0, reached=True, since=10.0, cpus=4)
    away = follow_on(first, EnvironmentFacts(at=20.0, reached=False, since=20.0, error="gone"))
    assert (away.since, away.error, away.cpus, away.reached) == (20.0, "gone", 4, False)
    still = follow_on(away, EnvironmentFacts(at=30.0, reached=False, since=30.0, error="gone"))
    assert (still.since, still.at) == (20.0, 30.0)
    back = follow_on(still, EnvironmentFacts(at=40.0, reached=True, since=40.0, cpus=2))
    assert (back.since, back.cpus, back.error) == (40.0, 2, "")
    assert follow_on(None, first) == first
