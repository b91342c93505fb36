"""The unit says what it should, and systemd reads back what was meant."""

import configparser

import pytest

from holdfast.agents.supervisor import background
from holdfast.commands.daemons.service import quote, quote_command_word, unit

ARGV = ["/opt/my tools/python", "-m", "holdfast", "up", "--home", '/srv/100%/a "b" \\c $HOME']


def parsed(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read_string(text)
    return parser


def read_back(line: str, *, command: bool) -> list[str]:
    """Words as systemd.syntax(7), systemd.unit(5) and systemd.service(5) say that they are read."""
    words: list[str] = []
    at = 0
    while at < len(line):
        assert line[at] == '"', "every word is quote"
        at, word = at + 1, ""
        while line[at] != '"':
            if line[at] == "\\":
                at += 1
                assert line[at] in '\\"'
            elif line[at] == "%" or (command and line[at] == "$"):
                at += 1
                assert line[at] == line[at - 1], "nothing is replaced"
            word += line[at]
            at += 1
        words.append(word)
        assert line[at + 1 : at + 2] in ("", " ")
        at += 2
    return words


def test_the_unit_has_what_a_user_service_needs() -> None:
    found = parsed(unit(ARGV, {"PATH": "/usr/bin:/bin"}))
    service = found["Service"]
    assert (service["Restart"], service["KillMode"], service["Type"]) == ("on-failure", "process", "notify")
    assert int(service["TimeoutStopSec"]) > background.LEAVE_S
    assert "4" in service["RestartPreventExitStatus"].split()
    assert found["Install"]["WantedBy"] == "default.target"
    assert found["Unit"]["Description"]


def test_its_command_and_its_environment_are_read_back_as_they_were() -> None:
    service = parsed(unit(ARGV, {"PATH": '/a b:/100%:/"q"'}))["Service"]
    assert read_back(service["ExecStart"], command=True) == ARGV
    assert read_back(service["Environment"], command=False) == ['PATH=/a b:/100%:/"q"']


@pytest.mark.parametrize("word", ["", "a", "ä ö", "%h", "$PATH ${X}", "\\", '"', "it's", "a;b # c"])
def test_a_word_is_read_back_as_it_was(word: str) -> None:
    assert read_back(quote_command_word(word), command=True) == [word]
    assert read_back(quote(word), command=False) == [word]


@pytest.mark.parametrize("word", ["a\nExecStartPre=/bin/evil", "a\tb", "a\0b", "\x7f"])
def test_what_a_line_cannot_hold_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="control"):
        quote(word)
