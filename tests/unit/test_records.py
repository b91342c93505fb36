"""The records of test runs are kept within bounds and shown as they are."""

import json
from typing import Any

from tests.support.deep_record import KEPT, added
from tools.records import RECORDS, Case, cases, deep_page, suite_page

RUN: dict[str, Any] = {
    "date": "2026-11-16 12:00",
    "head": "abc1234",
    "of": "",
    "outcome": "green",
    "tests": {"passed": 12},
    "did": {"kills": 300, "messages": 100_000},
    "slowest": {"tree to diff": [1230, 77]},
    "seconds": 61,
}
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_one[x]" time="0.5"/>
<testcase classname="tests.fault.test_b" name="test_two[quick]" time="2.25"><properties>
<property name="starts" value="3"/></properties><failure/></testcase>
</testsuite></testsuites>"""


def test_the_committed_page_shows_the_committed_record() -> None:
    told = json.loads((RECORDS / "deep.json").read_text("utf-8"))
    assert (RECORDS / "deep.md").read_text("utf-8") == deep_page(told), "run `python -m tools.records deep`"


def test_a_run_is_shown_with_what_it_did() -> None:
    [line] = [line for line in deep_page({"runs": [RUN]}).splitlines() if "abc1234" in line]
    assert (
        "| all | green | 12 passed | 300 kills, 100,000 messages | tree to diff 1,230 ms (77) | 61 s |"
        in line
    )


def test_the_newest_run_is_shown_first() -> None:
    text = deep_page({"runs": [RUN, {**RUN, "head": "def5678"}]})
    assert text.index("def5678") < text.index("abc1234")


def test_the_oldest_run_makes_room() -> None:
    runs = [{**RUN, "seconds": number} for number in range(KEPT)]
    kept = added(RUN, runs)["runs"]
    assert kept == [*runs[1:], RUN]


def test_a_run_of_what_was_not_run_again_stays() -> None:
    whole = {**RUN, "seconds": 3600}
    runs = [whole, *({**RUN, "of": "tests/fault/a.py", "seconds": number} for number in range(KEPT - 1))]
    kept = added({**RUN, "of": "tests/fault/b.py"}, runs)["runs"]
    assert kept[0] == whole
    assert [one["seconds"] for one in kept[1:3]] == [1, 2]
    others = [{**RUN, "of": f"tests/{number}.py"} for number in range(KEPT)]
    assert added(RUN, others)["runs"] == [*others[1:], RUN]


def test_where_the_time_goes_is_read_from_a_junit_file() -> None:
    found = cases(JUNIT)
    assert found == [
        Case("tests.unit.test_a", "test_one[x]", 0.5),
        Case("tests.fault.test_b", "test_two[quick]", 2.25, starts=3),
    ]
    text = suite_page(found, {"test_two": "it waits for a disk"}, "On a quiet machine.")
    assert "On a quiet machine." in text
    assert "2 tests, 3 s in all workers together; 1 of them start processes, 3 in all." in text
    assert text.index("| `fault` | 1 | 2.2 |") < text.index("| `unit` | 1 | 0.5 |")
    assert "| 2.2 | `tests.fault.test_b::test_two[quick]` | it waits for a disk |" in text
