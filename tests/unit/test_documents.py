"""Pages for people: links lead somewhere, generated ones are up to date, every page can be found."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree

from tests.support.console import Step, matches, steps
from tests.support.rows import every_row
from tools import benchmarks, site_hook

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")])
LINK: Final = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Without what is shown as code."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """As readers of Markdown make them from headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_row("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_within_the_repository_leads_somewhere(page: str) -> None:
    for link in LINK.findall(prose(ROOT / page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_the_index_leads_to_every_how_to_and_reference() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(prose(index))}
    pages = {page for folder in ("howto", "reference") for page in (ROOT / "docs" / folder).glob("*.md")}
    assert {str(page.relative_to(ROOT)) for page in pages - linked} == set()


def test_the_page_of_benchmarks_says_what_is_recorded() -> None:
    about, tables = benchmarks.read()
    assert benchmarks.PAGE.read_text("utf-8") == benchmarks.page(about, tables), (
        "run python -m tools.benchmarks"
    )
    plot = benchmarks.plot(tables)
    assert benchmarks.PLOT.read_text("utf-8") == plot, "run python -m tools.benchmarks"
    bars = [one for one in ElementTree.fromstring(plot) if one.get("rx")]  # noqa: S314 - our own
    assert len(bars) == sum(map(len, tables.values()))


def test_more_is_better_or_worse_as_the_measure_has_it() -> None:
    assert benchmarks.Row("a", "ms", 10, 2, "lower").word == "5.0 times faster"
    assert benchmarks.Row("a", "ms", 2, 5, "lower").word == "2.5 times slower"
    assert benchmarks.Row("a", "/s", 2, 50, "higher").word == "25 times faster"


def test_a_run_replaces_the_numbers_of_its_peer_only() -> None:
    record = {"about": "x", "codex": [{"measure": "start", "rival": 1, "ours": 1}, {"what": "kept"}]}
    bars = [
        {"measure": "start", "against": "swe-rex", "rival_p50": 9.0, "ours_p50": 9.0},
        {"measure": "start", "against": "codex", "rival_p50": 52.01234, "ours_p50": 1.5},
        {"measure": "ready", "against": "codex", "rival_p50": 1.0, "ours_p50": None},
    ]
    benchmarks.take_over(record, {"bars": bars[1:] + bars[:1]})
    assert record["codex"][0] == {"measure": "start", "rival": 52.012, "ours": 1.5}
    assert json.dumps(record)


def test_links_into_the_repository_mean_something_on_the_site() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="howto/x.md"))
    text = "see [this](../../examples/a.py), [that](../security.md), [all](../adr/), [none](../no/)"
    assert site_hook.on_page_markdown(text, page=page, config=None) == (
        "see this (`examples/a.py` in the repository), [that](../security.md), "
        "[all](../adr/0001-a-launcher-of-our-own.md), [none](../no/)"
    )


def test_what_is_typed_is_told_from_what_is_shown(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ a \\\n    b\nout\n…\n$ c\n```\n```sh\n$ not\n```\n", "utf-8")
    assert steps(page) == [Step("a \\\n    b", ("out", "…")), Step("c", ())]
    assert matches(("out  …", "…"), "out   of here\nmore\n")
    assert matches((), "")
    assert not matches(("out",), "out\nmore\n")
    assert not matches(("…", "x"), "out\n")
