"""Records that a user wrote: what they say is taken as it is said, and what is wrong is named."""

import tomllib
from typing import Any

import pytest

from holdfast.agents.catalog.agent import DESCRIBED, PromptBy, launch
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.userrecords import MAX_RECORDS, parse, parse_file
from holdfast.agents.evidence.evidence import Failure, Want, Work
from holdfast.errors import UsageError
from tests.support.rows import every_row

TOY = """
[toy]
binary = "toy"
package = "npm:toy"
versions = { least = "1.0", below = "2.0", recorded = "1.2.3" }
headless = ["run", "{unattended}", "{model}", "{prompt}"]
model = ["-m", "{model}"]
unattended = ["--yes"]
relocation = { TOY_HOME = "{state}/home" }
exits = { zero = "unknown", codes = { 7 = "auth" } }
[[toy.state]]
path = "{home}/.toy"
role = "toy's home"
variable = "TOY_HOME"
[[toy.retries]]
words = "^Trying again in {in_s} s ({attempt} of {of}): {cause}"
example = "Trying again in 1.5 s (2 of 5): 429 too many requests"
[[toy.screen]]
shows = "Run *? (y/n)"
means = "decision"
approve = ["y"]
deny = ["n"]
[[toy.screen]]
shows = "^> $"
means = "prompt"
[[toy.screen]]
shows = "Working"
means = "thinking"
[toy.provider]
wire = "chat"
environment = { TOY_URL = "{base}/v1", TOY_KEY = "{key}" }
[[toy.events]]
example = '{"type":"begin"}'
means = "start"
[[toy.events]]
example = '{"type":"end","error":"boom"}'
when = { type = "end", error = "*" }
means = "failed"
message = "error"
[[toy.events]]
example = '{"type":"end"}'
means = "done"
"""


def toy(**changes: Any) -> dict[str, Any]:
    tree: dict[str, Any] = tomllib.loads(TOY)["toy"]
    return {**tree, **changes}


def test_a_record_becomes_an_agent_like_ours() -> None:
    agent = parse("toy", toy(), "agents.toml", CATALOG)
    start = launch(agent, state="/s", prompt="do", model="m", unattended=True, base="http://h")
    assert start.arguments == ("run", "--yes", "-m", "m", "do")
    assert start.environment == {"TOY_HOME": "/s/home", "TOY_URL": "http://h/v1"}
    assert agent.prompt_by is PromptBy.ARGUMENT
    assert (agent.parser, len(agent.events)) == (DESCRIBED, 3)
    assert not agent.exits.zero_means_success
    assert agent.exits.codes == {7: Failure.AUTH}
    assert agent.package is not None
    assert agent.package.install == "npm install -g toy"
    assert agent.versions is not None
    assert "1.9" in agent.versions
    assert [sign.want for sign in agent.wants] == [Want.DECISION]
    assert [sign.work for sign in agent.busy] == [Work.THINKING]
    assert agent.dialogs[0].pattern.search("Run rm -rf x? (y/n)")
    assert agent.ready[0].search("text\n> \n")
    assert not agent.ready[0].search("a > b")


def test_the_words_of_an_attempt_say_what_ours_say() -> None:
    (sign,) = parse("toy", toy(), "agents.toml").retries
    found = sign.pattern.search("Trying again in 1.5 s (2 of 5): 429 too many requests")
    assert found is not None
    assert found.groupdict() == {"in_s": "1.5", "attempt": "2", "of": "5", "cause": "429 too many requests"}


OWN = {"path": "{home}/.toy/settings.json", "into": "home/settings.json", "way": "copied", "what": "settings"}
STATE = {"path": "{home}/.toy", "role": "r"}
EVENT = {"example": '{"type":"a","x":{"y":1}}', "means": "text"}
# What is written → the key, and a word of what is said about it.
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a key that nobody knows": ({"colour": 1}, "colour", "binary"),
    "a kind that does not fit": ({"headless": "run {prompt}"}, "headless", "array"),
    "a program by its path": ({"binary": "/bin/sh"}, "binary", "PATH"),
    "a program above": ({"binary": ".."}, "binary", "PATH"),
    "no prompt": ({"headless": ["run", "{model}"]}, "headless", "{prompt}"),
    "two prompts": ({"headless": ["{prompt}", "{prompt}", "{model}"]}, "headless", "{prompt}"),
    "a word without a meaning": ({"unattended": ["{key}"]}, "unattended", "{key}"),
    "a key in a command line": (
        {"provider": {"wire": "chat", "arguments": ["{key}"]}},
        "provider.arguments",
        "{key}",
    ),
    "our loader": ({"environment": {"LD_PRELOAD": "/w/x.so"}}, "environment.LD_PRELOAD", "not the record's"),
    "our path": ({"environment": {"PATH": "/w"}}, "environment.PATH", "not the record's"),
    "our home": ({"relocation": {"HOME": "{state}"}}, "relocation.HOME", "not the record's"),
    "our temporary place": ({"asking_environment": {"TMPDIR": "/"}}, "TMPDIR", "not the record's"),
    "ours": ({"environment": {"HOLDFAST_HOME": "/"}}, "HOLDFAST_HOME", "not the record's"),
    "an interpreter's": ({"mcp": {"environment": {"PYTHONPATH": "."}}}, "PYTHONPATH", "not the record's"),
    "state that is moved elsewhere": ({"relocation": {"TOY_HOME": "/etc"}}, "relocation.TOY_HOME", "{state}"),
    "state that is moved above": ({"relocation": {"TOY_HOME": "{state}/../x"}}, "TOY_HOME", "{state}"),
    "state beside ours": ({"relocation": {"TOY_HOME": "{state}x"}}, "TOY_HOME", "{state}"),
    "the whole home": ({"state": [{**STATE, "path": "{home}"}]}, "state[0].path", "{home}/NAME"),
    "any of the home": ({"state": [{**STATE, "path": "{home}/*"}]}, "state[0].path", "pattern"),
    "the machine's": ({"state": [{**STATE, "path": "/etc"}]}, "state[0].path", "{home}/NAME"),
    "above the home": ({"state": [{**STATE, "path": "{home}/../x"}]}, "state[0].path", "{home}/NAME"),
    "credentials": ({"state": [{**STATE, "path": "{home}/.ssh/id"}]}, "state[0].path", ".ssh"),
    "above credentials": ({"state": [{**STATE, "path": "{home}/.config"}]}, "state[0].path", ".config/"),
    "those of another CLI": ({"state": [{**STATE, "path": "{home}/.codex"}]}, "state[0].path", ".codex"),
    "a file above": ({"mcp": {"files": {"../x": ""}}}, "mcp.files.../x", "below the state"),
    "a file elsewhere": ({"mcp": {"files": {"/etc/x": ""}}}, "/etc/x", "below the state"),
    "a wire": ({"provider": {"wire": "smoke"}}, "provider.wire", "responses"),
    "a meaning of a code": ({"exits": {"codes": {"3": "sad"}}}, "exits.codes.3", "rate-limit"),
    "a code": ({"exits": {"codes": {"300": "auth"}}}, "exits.codes.300", "255"),
    "a sign of nothing": ({"screen": [{"shows": "**", "means": "prompt"}]}, "screen[0].shows", "words"),
    "a meaning of a sign": ({"screen": [{"shows": "x", "means": "sad"}]}, "screen[0].means", "decision"),
    "a key that is none": (
        {"screen": [{"shows": "x", "means": "decision", "approve": ["rm"], "deny": ["n"]}]},
        "screen[0]",
        "not a key",
    ),
    "too many gaps": ({"retries": [{"words": "a*b*c*d*e"}]}, "retries[0].words", "anything"),
    "an attempt's example": ({"retries": [{"words": "a", "example": "b"}]}, "retries[0].example", "words"),
    "no JSON": ({"events": [{**EVENT, "example": "{"}]}, "events[0].example", "JSON"),
    "a list": ({"events": [{**EVENT, "example": "[]"}]}, "events[0].example", "object"),
    "a meaning of an event": ({"events": [{**EVENT, "means": "sad"}]}, "events[0].means", "tool-call"),
    "a place that is not there": ({"events": [{**EVENT, "tool": "x.z"}]}, "events[0].tool", "x.z"),
    "an example of another": ({"events": [{**EVENT, "when": {"type": "b"}}]}, "events[0].example", "its own"),
    "a rule that is never reached": ({"events": [EVENT, EVENT]}, "events[1].example", "events[0]"),
    "an error's example": ({"errors": [{"words": "a", "example": "b"}]}, "errors[0].example", "words"),
    "a gap of attempts": ({"errors": [{"words": "a {attempt}"}]}, "errors[0].words", "{attempt}"),
    "a log elsewhere": ({"log": {"place": "../x", "retries": []}}, "log.place", "below the state"),
    "a key of somebody's": ({"keys": ["GITHUB_TOKEN"]}, "keys", "not the record's"),
    "a file that is not its own": (
        {"host_files": [{**OWN, "path": "{home}/.ssh/id"}]},
        "host_files[0].path",
        "`state`",
    ),
    "a file beside its own": ({"host_files": [{**OWN, "path": "{home}/.toyx"}]}, "host_files[0]", "`state`"),
    "a file above its own": (
        {"host_files": [{**OWN, "path": "{home}/.toy/../x"}]},
        "host_files[0]",
        "{home}",
    ),
    "a file of the machine": ({"host_files": [{**OWN, "path": "/etc/shadow"}]}, "host_files[0]", "{home}"),
    "a file that enters elsewhere": (
        {"host_files": [{**OWN, "into": "../x"}]},
        "host_files[0].into",
        "below",
    ),
    "a way in": ({"host_files": [{**OWN, "way": "linked"}]}, "host_files[0].way", "copied"),
    "a renewal of a copy": (
        {"host_files": [{**OWN, "renewal": {"refresh": "r", "tokens": ["r"], "expires": "r"}}]},
        "host_files[0].renewal",
        "renewed",
    ),
    "a renewal without its token": (
        {
            "host_files": [
                {**OWN, "way": "renewed", "renewal": {"refresh": "r", "tokens": [], "expires": "e"}}
            ]
        },
        "host_files[0].renewal.tokens",
        "`r`",
    ),
    "a parser and events": ({"parser": "claude"}, "parser", "one of the two"),
}


@every_row("name", sorted(WRONG))
def test_what_is_wrong_is_named_with_its_place(name: str) -> None:
    changes, key, words = WRONG[name]
    with pytest.raises(UsageError) as raised:
        parse("toy", toy(**changes), "agents.toml")
    said = f"{raised.value} {raised.value.remedy}"
    assert str(raised.value).startswith("agents.toml: [toy]")
    assert key in said
    assert words in said


@every_row("name", ["codex", "shell"])
def test_no_record_stands_for_an_agent_of_ours(name: str) -> None:
    with pytest.raises(UsageError, match="knows by itself"):
        parse(name, toy(), "agents.toml", CATALOG)


@every_row("name", ["../x", "a/b", "A", "a_b", "", "-x", "x" * 33])
def test_a_name_is_one_that_a_worker_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of an agent"):
        parse(name, toy(), "agents.toml")


def test_a_wrong_record_leaves_the_others_alone() -> None:
    found = parse_file(f"{TOY}\n[bad]\nbinary = 1\n[worse]\n", "agents.toml")
    assert set(found.agents) == {"toy"}
    assert set(found.invalid) == {"bad", "worse"}
    assert "binary" in found.invalid["bad"]
    assert "binary" in found.invalid["worse"]


@every_row("text", ["[", "a = " + "[" * 100_000, "\n".join(f"[a{n}]" for n in range(MAX_RECORDS + 1))])
def test_a_file_that_is_none_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(UsageError, match=r"^agents\.toml: "):
        parse_file(text, "agents.toml")
