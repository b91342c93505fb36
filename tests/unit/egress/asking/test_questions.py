"""Questions about hosts: what is asked, and what an answer allows."""

import pytest

from holdfast.egress.asking.questions import (
    MAX_OPEN,
    MAX_PUT,
    Answer,
    HostQuestion,
    NotAllowed,
    QuestionBook,
    StaleAnswer,
    explain,
    find_pattern,
)
from holdfast.egress.hosts import Host, decide, parse_host, parse_rules
from tests.support.rows import every_row

API = Host("api.example.com")


def put(book: QuestionBook, name: str = "api.example.com", port: int = 443) -> HostQuestion:
    question = book.ask(parse_host(name), port)
    assert question is not None
    return question


def is_allowed(book: QuestionBook, name: str, port: int = 443) -> bool:
    return decide(book.rules, parse_host(name), port).allowed


def test_without_a_time_to_answer_nothing_is_asked() -> None:
    book = QuestionBook(parse_rules(["known.test"]))
    assert not book.asks
    assert book.ask(Host("known.test"), 443) is None
    with pytest.raises(NotAllowed, match=r"^no rule allows it$"):
        book.ask(API, 443)
    assert book.find_ports(API, [80, 443]) == []


def test_one_question_stands_for_every_connection_to_a_host_and_port() -> None:
    book = QuestionBook(parse_rules(), 60)
    first = book.ask(API, 443)
    assert first == HostQuestion(1, "api.example.com", 443, "*.example.com:443", 60)
    assert book.ask(API, 443) is first
    assert put(book, port=80).id == 2


def test_a_yes_is_for_this_host_and_this_port() -> None:
    book = QuestionBook(parse_rules(), 60)
    asked = put(book)
    assert book.settle(asked.id, Answer.HOST) == [asked]
    assert book.ask(API, 443) is None
    for name, port in (
        ("api.example.com", 80),
        ("www.example.com", 443),
        ("example.com", 443),
        ("x.api.example.com", 443),
    ):
        assert not is_allowed(book, name, port)


def test_a_pattern_settles_what_it_covers_and_nothing_else() -> None:
    book = QuestionBook(parse_rules(), 60)
    first, beside = put(book), put(book, "www.example.com")
    other_port, other_name = put(book, "www.example.com", 80), put(book, "api.example.org")
    assert book.settle(first.id, Answer.PATTERN) == [first, beside]
    assert book.open == [other_port, other_name]
    assert is_allowed(book, "new.example.com")
    assert not is_allowed(book, "new.example.com", 80)
    assert not is_allowed(book, "example.com")


def test_a_denial_is_never_asked_about_and_beats_a_grant() -> None:
    book = QuestionBook(parse_rules(deny=["ads.example.com"]), 60)
    with pytest.raises(NotAllowed, match=r"--deny-host ads\.example\.com denies it"):
        book.ask(Host("ads.example.com"), 443)
    assert book.find_ports(Host("ads.example.com"), [80, 443]) == []
    book.settle(put(book).id, Answer.PATTERN)
    assert is_allowed(book, "www.example.com")
    assert not is_allowed(book, "ads.example.com")


def test_a_no_holds_for_the_whole_run_and_no_answer_only_for_now() -> None:
    book = QuestionBook(parse_rules(), 60)
    book.settle(put(book).id, Answer.NO)
    with pytest.raises(NotAllowed, match="the answer was no"):
        book.ask(API, 443)
    for answer in (Answer.LATE, Answer.NOBODY):
        asked = put(book, port=80)
        assert book.settle(asked.id, answer) == [asked]
    assert put(book, port=80).id == 4
    assert not is_allowed(book, "api.example.com", 80)


@every_row("answer", list(Answer))
def test_an_answer_counts_once(answer: Answer) -> None:
    book = QuestionBook(parse_rules(), 60)
    asked = put(book)
    book.settle(asked.id, Answer.NO)
    for id_ in (asked.id, 0, 99):
        with pytest.raises(StaleAnswer):
            book.settle(id_, answer)
    assert book.rules.allow == ()


def test_an_old_answer_does_not_answer_a_new_question() -> None:
    book = QuestionBook(parse_rules(), 60)
    old = put(book)
    book.settle(old.id, Answer.LATE)
    new = put(book)
    with pytest.raises(StaleAnswer):
        book.settle(old.id, Answer.HOST)
    assert book.open == [new]


def test_questions_are_bounded_at_a_time_and_in_all() -> None:
    book = QuestionBook(parse_rules(), 60)
    asked = [put(book, f"h{number}.test") for number in range(MAX_OPEN)]
    with pytest.raises(NotAllowed, match="too much was asked"):
        book.ask(API, 443)
    for question in asked:
        book.settle(question.id, Answer.LATE)
    for _ in range(MAX_PUT - MAX_OPEN):
        book.settle(put(book).id, Answer.LATE)
    with pytest.raises(NotAllowed, match="too much was asked"):
        book.ask(API, 443)


@every_row("name", ["localhost", "x.localhost", "127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]"])
def test_what_is_not_public_by_its_text_is_not_asked_about(name: str) -> None:
    book = QuestionBook(parse_rules(), 60)
    with pytest.raises(NotAllowed):
        book.ask(parse_host(name), 443)


@every_row(
    ("name", "pattern"),
    [
        ("api.example.com", "*.example.com:443"),
        ("a.b.example.com", "*.b.example.com:443"),
        ("example.com", None),
        ("intranet", None),
        ("93.184.216.34", None),
    ],
)
def test_a_pattern_is_about_the_names_beside_a_host(name: str, pattern: str | None) -> None:
    found = find_pattern(parse_host(name), 443)
    assert (None if found is None else str(found)) == pattern


def test_a_refusal_says_how_long_was_waited() -> None:
    assert explain(Answer.LATE, 60.0) == "no rule allows it, and nobody answered within 60 s"
