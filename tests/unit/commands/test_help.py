"""Help that somebody reads for the first time: a verb, an object, an example, a heading."""

import re
import shlex
from typing import Final

import click

from holdfast.cli import cli
from holdfast.commands.clickoptions import SECTIONS, SectionedGroup
from tests.support.rows import every_row
from tools.reference import commands

CONTEXTS: Final = {context.command_path: context for context in commands(cli, "holdfast")}
COLUMNS: Final = 80
# How a riddle begins: no verb, or one that says nothing.
RIDDLES: Final = re.compile(
    r"(Say|Be|Let|Mean|Put|The|A|An|All|Boards?|Tasks?|Workers?|What|Whether|Which|How)\b"
)


def shown(name: str) -> str:
    known = CONTEXTS[name]
    settings = {**known.command.context_settings, "terminal_width": COLUMNS}
    return click.Context(known.command, info_name=known.info_name, parent=known.parent, **settings).get_help()


def examples(name: str) -> list[str]:
    [found] = re.findall(r"^  Examples?:\n((?:    .+\n?)+)", shown(name), re.MULTILINE)
    return [line.strip() for line in found.splitlines()]


@every_row("name", CONTEXTS)
def test_the_first_line_is_a_short_sentence_with_a_verb(name: str) -> None:
    first = (CONTEXTS[name].command.help or "").strip().splitlines()[0]
    assert re.fullmatch(r"[A-Z].*[.]", first), first
    assert not RIDDLES.match(first), first
    assert len(first) <= 80, first


@every_row("name", [name for name, one in CONTEXTS.items() if isinstance(one.command, click.Group)])
def test_no_line_of_a_list_of_commands_is_cut_at_80_columns(name: str) -> None:
    assert not re.search(r"\.\.\.$", shown(name).partition("Options:")[2], re.MULTILINE), shown(name)


@every_row("name", CONTEXTS)
def test_every_help_has_examples_of_that_command(name: str) -> None:
    command = name.removeprefix("holdfast").strip()
    assert any(f"holdfast {command}".strip() in example for example in examples(name))


@every_row("name", CONTEXTS)
def test_every_example_can_be_typed(name: str) -> None:
    for example in examples(name):
        text = example[example.index("holdfast") :] if "holdfast" in example else ""
        words = shlex.split(re.split(r" [|<>] | -- holdfast ", text)[0])[1:]
        if not text or re.match(r"[A-Z_]+=", example):
            continue
        path = "holdfast"
        while words and f"{path} {words[0]}" in CONTEXTS:
            path = f"{path} {words.pop(0)}"
        # The command's own context: click keeps the first help option that it makes for a command.
        command, context = CONTEXTS[path].command, CONTEXTS[path]
        _, rest, _ = command.make_parser(context).parse_args(words)
        assert not rest or isinstance(command, click.Group), example


@every_row("name", SECTIONS)
def test_every_command_is_under_one_heading(name: str) -> None:
    group = CONTEXTS[f"holdfast {name}".strip()].command
    assert isinstance(group, SectionedGroup)
    named = [one for names in SECTIONS[name].values() for one in names]
    context = click.Context(group)
    there = [
        one
        for one in group.list_commands(context)
        if not getattr(group.get_command(context, one), "hidden", 1)
    ]
    assert sorted(named) == sorted(there)
    assert "Other commands" not in shown(f"holdfast {name}".strip())


def test_a_command_without_a_heading_is_still_shown() -> None:
    group = SectionedGroup("g", sections={"Named": ("a",)})
    group.add_command(click.Command("a", help="Do a."))
    group.add_command(click.Command("b", help="Do b."))
    text = click.Context(group).get_help()
    assert re.search(r"Named:\n  a  Do a\.\n\nOther commands:\n  b  Do b\.", text)


def test_no_option_is_without_help() -> None:
    """More than its default, and of hidden commands too: whoever looks for what went wrong reads them."""
    without = [
        f"{name} {option.opts[0]}"
        for name, context in CONTEXTS.items()
        for option in context.command.params
        if isinstance(option, click.Option)
        if not option.hidden and not re.match(r"[^\s\[]", option.help or "")
    ]
    assert without == []
