from holdfast.agents.evidence.evidence import (
    Progress,
    Requested,
    Source,
    Usage,
    Used,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.agents.evidence.window import MAX_ITEMS, Window
from tests.support.evidence import refused, story

DECISION = (0.0, Source.PROTOCOL, Wants(Want.DECISION, request="1"))


def test_a_repeated_report_keeps_its_first_and_its_latest_times() -> None:
    window = Window(story(*((float(at), Source.SOCKET, Working(Work.NETWORK)) for at in range(10))))
    assert [item.at for item in window.items] == [0.0, 8.0, 9.0]


def test_a_report_that_came_back_is_another_one() -> None:
    works = [Work.TOOL, Work.TOOL, Work.THINKING, Work.TOOL]
    window = Window(story(*((float(at), Source.ESCAPE, Working(work)) for at, work in enumerate(works))))
    assert [item.at for item in window.items] == [0.0, 1.0, 2.0, 3.0]


def test_what_is_counted_is_kept_each_time() -> None:
    rows = [(float(at), Source.DENIAL, refused("/home/u/.x")) for at in range(5)]
    rows_sent = [(float(at), Source.SOCKET, Requested()) for at in range(5)]
    assert len(Window(story(*rows, *rows_sent)).items) == 10


def test_the_commonest_kind_gives_way_so_that_an_old_request_stays() -> None:
    requests = [(float(at), Source.SOCKET, Requested()) for at in range(2 * MAX_ITEMS)]
    window = Window(story(DECISION, *requests))
    assert len(window.items) == MAX_ITEMS
    assert window.items[0] == story(DECISION)[0]
    assert window.items[-1].at == requests[-1][0]


def test_a_tool_is_not_pushed_out_by_text() -> None:
    tool = (0.0, Source.PROTOCOL, Progress(Work.TOOL))
    works = [Work.STREAMING, Work.STREAMING, Work.THINKING] * MAX_ITEMS
    texts = [(float(at), Source.PROTOCOL, Progress(work)) for at, work in enumerate(works)]
    assert Window(story(tool, *texts)).items[0] == story(tool)[0]


def test_adding_says_whether_it_is_news() -> None:
    window = Window(max_items=3)
    first, other = story((0.0, Source.TITLE, Working(Work.TOOL)), (2.0, Source.TITLE, Working(Work.THINKING)))
    assert window.add(first)
    assert not window.add(first)
    assert window.add(other)
    assert window.add(first)


def test_of_what_was_used_only_the_newest_count_is_kept_and_it_is_no_news() -> None:
    counts = [(float(at), Source.PROTOCOL, Used(Usage(at, at))) for at in range(3)]
    window = Window(story(DECISION, *counts))
    assert [item.at for item in window.items] == [0.0, 2.0]
    assert not window.add(story((3.0, Source.PROTOCOL, Used(Usage(9, 9))))[0])
