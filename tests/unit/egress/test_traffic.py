"""What went out is counted by host and port, and what did not by reason."""

from holdfast.egress.traffic import MAX_ROWS, Traffic, grant_of


def test_connections_to_one_host_are_counted_together() -> None:
    traffic = Traffic()
    for now in (5, 9):
        traffic.connect("a.example", 443, now).sent += 10
    traffic.connect("a.example", 80, 7)
    rows = {(row.host, row.port): row for row in traffic.sent}
    row = rows["a.example", 443]
    assert (row.connections, row.sent, row.first_ms, row.last_ms) == (2, 20, 5, 9)
    assert len(rows) == 2


def test_refusals_are_counted_and_bounded() -> None:
    traffic = Traffic()
    for _ in range(2):
        traffic.refuse("b.example", None, "no rule allows it", 3, grant="--allow-host b.example")
    assert [(row.host, row.count, row.first_ms) for row in traffic.refused] == [("b.example", 2, 3)]
    for number in range(MAX_ROWS + 5):
        traffic.refuse(f"{number}.example", None, "no rule allows it", 3, grant=None)
    assert len(traffic.refused) == MAX_ROWS
    assert traffic.dropped == 6
    assert traffic.report()["dropped"] == 6


def test_the_smallest_grant_names_a_port_where_it_is_no_usual_one() -> None:
    assert grant_of("a.example", None) == grant_of("a.example", 443) == "--allow-host a.example"
    assert grant_of("a.example", 5432) == "--allow-host a.example:5432"
