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


def test_the_account_of_a_command_is_part_of_its_process_while_it_runs_and_after() -> None:
    whole, part, heard = Traffic(), Traffic(), []
    whole.connect("a.test", 443, 1000).sent = 5
    whole.join(part)
    row = part.connect("a.test", 443, 900)
    row.sent, row.received, row.last_ms = 7, 9, 2000
    part.connect("b.test", 80, 1500)
    part.refuse("c.test", None, "no rule allows it", 1600, grant="--allow-host c.test")
    live = whole.report()
    whole.leave(part)
    whole.leave(part)
    assert whole.report() == live
    sent = {(row.host, row.port): row for row in whole.sent}
    assert (sent["a.test", 443].connections, sent["a.test", 443].sent) == (2, 12)
    assert (sent["a.test", 443].first_ms, sent["a.test", 443].last_ms) == (900, 2000)
    assert [row.host for row in whole.refused] == ["c.test"]
    assert part.report() != whole.report()
    told = Traffic(lambda row, times: heard.append((row.host, row.count, times)))
    for _ in range(2):
        told.refuse("c.test", None, "no rule allows it", 1600, grant=None)
    told.take(whole.report())
    assert heard == [("c.test", 1, 1), ("c.test", 2, 1), ("c.test", 1, 1)]
    assert told.report()["sent"] == whole.report()["sent"]


def test_parts_do_not_grow_without_bound() -> None:
    whole = Traffic()
    for number in range(MAX_ROWS + 5):
        part = Traffic()
        part.connect(f"h{number}.test", 443, 1)
        whole.join(part)
        whole.leave(part)
    assert len(whole.sent) == MAX_ROWS
    assert whole.report()["dropped"] == 5
