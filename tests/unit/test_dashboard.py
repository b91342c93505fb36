"""The dashboard for Grafana asks for numbers that there are, by labels that they have."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.board.rules import metrics as board
from holdfast.relay.metrics import QUESTIONS, PrometheusRelayMetrics
from holdfast.server.executor import Executor
from holdfast.server.metrics import PrometheusMetrics

FILE: Final = Path(__file__).parents[2] / "examples" / "grafana-dashboard.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
GIVEN: Final = {"instance", "le"}  # by Prometheus, and by every histogram


def every_metric() -> dict[str, set[str]]:
    """All that a server, a relay and a board can say: the name of each line, and its labels."""
    server = PrometheusMetrics(Executor({}))
    server.record_connection(opened=True)
    server.record_answer("initialize", 0, 0.1)
    server.record_process(0, 0.1)
    with server.time("registration"), server.time("rendezvous"):
        server.record_reconnect("peer_close")
    relay = PrometheusRelayMetrics(lambda: dict.fromkeys(QUESTIONS, 0))
    relay.record_answer("register", 200, 0.1)
    relay.record_rendezvous("executor", "success")
    done = board.Runs(profile="p", outcome="done", failure=None, count=1, told=1, tokens=1, cost=1, turns=1)
    recent = board.Recent(events=1, runs=[done], waits_ms=[1])
    lines = "\n".join(board.exposition("b", {"ready": 1}, 1, recent)) + "\n"
    found: dict[str, set[str]] = {}
    for text in (server.render().decode(), relay.render().decode(), lines):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    known = every_metric()
    for target in panel["targets"]:
        names = set(re.findall(r"holdfast_\w+", target["expr"]))
        assert names
        assert names <= set(known)
        labels = {label for name in names for label in known[name]} | GIVEN
        by = re.findall(r"by \(([^)]*)\)", target["expr"])
        asked = {word.strip() for group in by for word in group.split(",")}
        asked |= set(re.findall(r"(\w+)(?:=~|!=|=)\"", target["expr"]))
        asked |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert asked <= labels


def test_every_number_of_a_server_and_a_relay_is_on_it() -> None:
    asked = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    known = {re.sub(r"_(count|sum|bucket|total|created)$", "", name) for name in every_metric()}
    assert {name for name in known if "recent" not in name and name not in asked} == set()


def test_its_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
