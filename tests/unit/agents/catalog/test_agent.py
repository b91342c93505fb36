"""What follows from a record: arguments, variables, and whose file a path is."""

import json
from dataclasses import replace

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    Agent,
    Mcp,
    PromptBy,
    Provider,
    StatePath,
    Versions,
    fill,
    launch,
    notes_on,
    provider_secrets,
    relocation_of,
    state_files,
    state_of,
    state_paths,
)
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.verdict import ExitRules
from tests.support.rows import every_row

DATABASE = StatePath("{home}/.x/x.db*", "x's database", CANNOT_START, "X_HOME", "x.db*")
HOME = StatePath("{home}/.x", "x's home", CANNOT_START, "X_HOME")
TEMPORARY = StatePath("/tmp/x-*", "x's temporary files", CANNOT_START)
CACHE = StatePath("{work}/.x.cache", "x's cache", CANNOT_START)
X = Agent(
    name="x",
    binary="x",
    package=None,
    versions=None,
    subcommand=("run",),
    headless=("--json", "{unattended}", "{model}", "--", "{prompt}"),
    interactive=("{model}", "--tui"),
    model_options=("-m", "{model}"),
    unattended=("--yolo",),
    unattended_environment={"IS_SANDBOX": "1"},
    state=(DATABASE, HOME, TEMPORARY, CACHE),
    relocation={"X_HOME": "{state}/x"},
    relocation_arguments=("--data", "{state}"),
    environment={"X_QUIET": "1"},
    exits=ExitRules(zero_means_success=True),
    provider=Provider(
        wire="chat",
        environment={"X_URL": "{base}/v1", "X_KEY": "{key}", "X_MODEL": "{model}"},
        arguments=("-c", "provider=other"),
        files={"config.json": '{"url":"{base}","model":"{model}","deep":{}}'},
        model="other/{model}",
    ),
    mcp=Mcp(
        arguments=("--mcp", '{"command":{command},"args":{options}}'),
        environment={"X_MCP": "{state}/mcp.json"},
        files={"mcp.json": '{"holdfast":{"argv":{argv}}}'},
    ),
)


def test_words_are_filled_and_other_braces_stay() -> None:
    assert fill('{"a":{"b":"{base}"},"{env:KEY}":"{model}"}', {"base": "u"}) == (
        '{"a":{"b":"u"},"{env:KEY}":"{model}"}'
    )


def test_a_word_inside_a_prompt_is_not_filled_again() -> None:
    assert launch(X, state="/s", prompt="{state} {model}").arguments[-1] == "{state} {model}"


def test_a_headless_run_has_its_prompt_where_the_record_says() -> None:
    plain = launch(X, state="/s", prompt="do it")
    assert plain.arguments == ("run", "--data", "/s", "--json", "--", "do it")
    assert plain.stdin is None
    assert plain.environment == {"X_QUIET": "1", "X_HOME": "/s/x"}
    by_stdin = launch(replace(X, prompt_by=PromptBy.STDIN, headless=("-",)), state="/s", prompt="do it")
    assert (by_stdin.arguments, by_stdin.stdin) == (("run", "--data", "/s", "-"), "do it")


def test_without_a_prompt_the_interactive_program_starts() -> None:
    assert launch(X, state="/s", model="m").arguments == ("--data", "/s", "-m", "m", "--tui")
    assert launch(X, state="/s").stdin is None


def test_acting_without_asking_is_only_on_request() -> None:
    free = launch(X, state="/s", prompt="p", unattended=True)
    assert "--yolo" in free.arguments
    assert free.environment["IS_SANDBOX"] == "1"


def test_state_may_stay_in_the_home() -> None:
    stays = launch(X, state=None, prompt="p")
    assert stays.arguments == ("run", "--json", "--", "p")
    assert stays.environment == {"X_QUIET": "1"}


def test_another_provider_is_named_without_its_key() -> None:
    other = launch(X, state="/s", prompt="p", model="m", base="http://h")
    before = ("run", "-c", "provider=other", "--data", "/s")
    assert other.arguments == (*before, "--json", "-m", "other/m", "--", "p")
    assert other.environment == {"X_QUIET": "1", "X_HOME": "/s/x", "X_URL": "http://h/v1", "X_MODEL": "m"}
    assert provider_secrets(X, "k") == {"X_KEY": "k"}
    assert state_files(X, base="http://h", model="m", mcp=()) == {
        "config.json": '{"url":"http://h","model":"m","deep":{}}'
    }


def test_a_cli_without_a_provider_has_no_files_and_no_key() -> None:
    none = replace(X, provider=None)
    assert provider_secrets(none, "k") == {}
    assert state_files(none, base="u", model="m", mcp=()) == {}
    assert launch(none, state="/s", prompt="p", base="u").environment == {"X_QUIET": "1", "X_HOME": "/s/x"}


SERVER = ["/bin/ä b", "mcp", "--run", '"x"']


def test_an_mcp_server_is_named_where_the_record_says() -> None:
    given = launch(X, state="/s", prompt="p", base="http://h", mcp=SERVER)
    named = '{"command":"/bin/ä b","args":["mcp", "--run", "\\"x\\""]}'
    assert given.arguments[:7] == ("run", "-c", "provider=other", "--mcp", named, "--data", "/s")
    assert given.environment["X_MCP"] == "/s/mcp.json"
    [text] = state_files(X, base=None, model="", mcp=SERVER).values()
    assert json.loads(text) == {"holdfast": {"argv": SERVER}}


def test_without_an_mcp_server_nothing_is_said_of_it() -> None:
    plain = launch(X, state="/s", prompt="p")
    assert "--mcp" not in plain.arguments
    assert "X_MCP" not in plain.environment
    assert state_files(X, base=None, model="", mcp=[]) == {}
    assert state_files(replace(X, mcp=None), base=None, model="", mcp=SERVER) == {}


def test_settings_of_a_provider_and_of_an_mcp_server_share_a_file() -> None:
    shared = replace(X, mcp=Mcp(files={"config.json": '{"servers":{argv}}'}))
    [text] = state_files(shared, base="u", model="m", mcp=SERVER).values()
    assert json.loads(text) == {"url": "u", "model": "m", "deep": {}, "servers": SERVER}


@every_row(
    ("path", "kept"),
    [
        ("/h/.x/x.db", DATABASE),
        ("/h/.x/x.db-wal", DATABASE),
        ("/h/.x", HOME),
        ("/h/.x/deep/er", HOME),
        ("/h/.xy", None),
        ("/h", None),
        ("/tmp/x-0/socket", TEMPORARY),
        ("/w/.x.cache/a", CACHE),
        ("/elsewhere/.x", None),
    ],
)
def test_a_path_is_what_the_most_specific_row_says(path: str, kept: StatePath | None) -> None:
    assert state_of(X, path, home="/h/", work="/w", environment={}) is kept


def test_state_is_where_the_variable_says() -> None:
    moved = {"X_HOME": "/s/x/"}
    assert state_of(X, "/s/x/x.db-shm", home="/h", work="/w", environment=moved) is DATABASE
    assert state_of(X, "/h/.x/x.db", home="/h", work="/w", environment=moved) is None
    places = [place for place, _ in state_paths(X, home="/h", work="/w", environment=moved)]
    assert places == ["/s/x/x.db*", "/s/x", "/tmp/x-*", "/w/.x.cache"]


def test_a_relocation_is_said_as_it_is_set() -> None:
    assert relocation_of(X, DATABASE, state="/s") == "X_HOME=/s/x"
    assert relocation_of(X, TEMPORARY, state="/s") == ""


@every_row(
    ("version", "known"),
    [
        ("1.2.0", True),
        ("v1.9 (build 3)", True),
        ("x 1.10.3-rc1", True),
        ("2.0.0", False),
        ("1.1", False),
        ("?", False),
    ],
)
def test_a_version_is_in_the_range_or_not(version: str, known: bool) -> None:
    assert (version in Versions((1, 2), (2, 0), "1.2.0")) is known


@every_row(
    ("unattended", "own_sandbox", "said"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_that_its_own_sandbox_is_off_is_said_only_where_it_is(
    unattended: bool, own_sandbox: bool, said: bool
) -> None:
    notes = notes_on(
        CATALOG["codex"], version=None, unattended=unattended, confined=True, own_sandbox=own_sandbox
    )
    assert any("its own sandbox is off" in note for note in notes) is said
