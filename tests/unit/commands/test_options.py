"""The command line of `holdfast exec`: the small parser says what click says, or leaves it to click."""

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.supervisor.background import KEEP
from holdfast.commands.daemons import serving
from holdfast.commands.exec import exec as command
from holdfast.commands.options import EXEC, LIMITS, parse, read_span

OPTIONS = (*LIMITS, *EXEC)
WORDS = [
    *(option.name for option in OPTIONS),
    *("-h", "--help", "--", "-", "--no-such", "-x", "", "true", "on", "off", "landlock", "a b", "é"),
    *("80", "0", "65536", "+80", " 80", "8_0", "٣"),
    *(
        "--network=on",
        "--network=",
        "--network=maybe",
        "--json=1",
        "--cwd=/srv",
        "--deny=*.env",
        "--backend=",
    ),
    "--loopback-port=80",
]


def by_click(args: list[str]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """What click makes of it; None if it refuses, or prints its help."""
    # As `cli` has them: click keeps the first help option that it makes for a command.
    context = click.Context(command, allow_interspersed_args=False, help_option_names=["-h", "--help"])
    parser = command.make_parser(context)
    try:
        values, left, order = parser.parse_args(list(args))
        for parameter in click.core.iter_params_for_processing(order, command.get_params(context)):
            _, left = parameter.handle_parse_result(context, values, left)
    except (click.UsageError, click.exceptions.Exit):
        return None
    found = dict(context.params)
    return found, tuple(found.pop("command"))


@given(st.lists(st.sampled_from(WORDS), max_size=7))
def test_what_it_understands_click_understands_in_the_same_way(args: list[str]) -> None:
    ours = parse(OPTIONS, args)
    if ours is not None:
        assert ours == by_click(args)


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["true"],
        ["--", "true", "--json"],
        ["true", "--json", "--"],
        ["--json", "--watch", "--read-only", "--", "true"],
        ["--allow-write", "a", "--allow-write=b", "--deny", "--json", "--", "true"],
        ["--loopback-port", "80", "--loopback-port=443", "true"],
        ["--network", "off", "--network", "on", "--backend=bwrap", "--degraded", "--cwd", "/", "true"],
        ["--env", "box", "--explain", "x", "--print-plan", "x"],
    ],
)
def test_an_ordinary_command_line_does_not_need_click(args: list[str]) -> None:
    assert parse(OPTIONS, args) == by_click(args) is not None


@pytest.mark.parametrize(
    "args",
    [
        ["-h"],
        ["--help"],
        ["--json", "--help"],
        ["--no-such", "true"],
        ["--json=1", "true"],
        ["--network", "maybe", "true"],
        ["--loopback-port", "0", "true"],
        ["--cwd"],
        ["--js", "true"],
    ],
)
def test_whatever_else_is_left_to_click(args: list[str]) -> None:
    assert parse(OPTIONS, args) is None


def test_the_server_of_the_workers_does_not_need_click() -> None:
    parsed = parse(serving.SERVE, ["--listen", "unix:///h/exec.sock", "--keep", KEEP, "--home", "/h"])
    assert parsed is not None
    given, command = parsed
    assert (given["keep_s"], given["home"], command) == (7 * 86400.0, "/h", ())


@pytest.mark.parametrize(
    "text", ["", "d", "7", "7w", "0s", "366d", "-1d", "1.5h", "٣d", " 7d", "9999999999s"]
)
def test_what_is_no_span_of_time_is_left_to_click(text: str) -> None:
    assert read_span(text) is None
    assert parse(serving.SERVE, ["--keep", text]) is None
