"""Any text in, causes out; unknown text says so."""

from holdfast.doctor.explanation import explain, lines, report

LOG = """starting
bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted
retry
bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted
bwrap: Unknown option --argv0
"""


def test_each_cause_is_named_once_with_its_lines_surest_first() -> None:
    found = explain(LOG)
    assert {one.id for one in found} == {"lo.newaddr", "bwrap.option"}
    assert [one.confidence for one in found] == sorted((one.confidence for one in found), reverse=True)
    [loopback] = [one for one in found if one.id == "lo.newaddr"]
    assert len(loopback.evidence) == 2


def test_people_read_cause_evidence_and_remedy() -> None:
    told = "\n".join(lines(explain(LOG)))
    assert "RTM_NEWADDR" in told
    assert "(and 1 more)" in told
    assert told.count("  try: ") == 2


def test_unknown_text_says_so_and_what_to_try_next() -> None:
    assert explain("all is well") == []
    assert any("holdfast doctor" in line for line in lines([]))


def test_machines_get_the_same_as_a_tree() -> None:
    tree = report(explain(LOG))
    assert tree["schemaVersion"] == 1
    explanations = tree["explanations"]
    assert isinstance(explanations, list)
    assert {one["fingerprint"] for one in explanations} == {"lo.newaddr", "bwrap.option"}
