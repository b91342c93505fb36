"""The records: complete, without contradiction, and good for a start."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from holdfast.agents.catalog.agent import (
    Agent,
    Channel,
    PromptBy,
    launch,
    relocation_of,
    state_files,
    state_of,
)
from holdfast.agents.catalog.catalog import BORROWED, CATALOG, MARKERS, without_outer_agent
from holdfast.agents.evidence.evidence import Idle, Want, Wants, Working
from holdfast.agents.terminal.keys import KEYS
from tests.support.rows import every_row

AGENTS = list(CATALOG.values())
each = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
NAMES = {"codex", "opencode", "claude", "gemini", "qwen", "aider", "hermes", "shell"}


def test_the_promised_clis_are_there_under_their_names() -> None:
    assert set(CATALOG) >= NAMES
    assert all(name == agent.name for name, agent in CATALOG.items())


@each
def test_a_start_leaves_no_word_unfilled(agent: Agent) -> None:
    for prompt in ("PROMPT", None):
        start = launch(agent, state="/s", prompt=prompt, model="m", unattended=True, base="http://h")
        for text in (*start.arguments, *start.environment.values()):
            assert not re.search(r"\{(?:state|home|work|prompt|model|base|key|unattended)\}", text)


SERVER = ["/opt/x y/holdfast", "mcp", "--run", '/w/"q"/run.json']
GIVEN = {"codex", "claude", "opencode", "gemini", "qwen"}


def test_the_clis_that_boards_run_can_be_given_an_mcp_server() -> None:
    assert {agent.name for agent in AGENTS if agent.mcp is not None} == GIVEN


@every_row("name", sorted(GIVEN))
def test_an_mcp_server_is_given_in_words_that_the_cli_can_read(name: str) -> None:
    agent = CATALOG[name]
    start = launch(agent, state="/s", prompt="p", mcp=SERVER)
    files = state_files(agent, base=None, model="", mcp=SERVER)
    texts = [
        *(json.loads(text) for text in (*files.values(), *start.arguments) if text.startswith("{")),
        *(tomllib.loads(text) for text in start.arguments if text.startswith("mcp_servers.")),
    ]
    [given] = [text.get("mcpServers") or text.get("mcp_servers") or text["mcp"] for text in texts]
    server = given["holdfast"]
    command = server["command"]
    assert ([command, *server["args"]] if isinstance(command, str) else command) == SERVER
    assert agent.mcp is not None
    assert agent.mcp.in_state or all(f"/s/{path}" in start.environment.values() for path in files)


@each
def test_the_prompt_goes_exactly_one_way(agent: Agent) -> None:
    start = launch(agent, state="/s", prompt="PROMPT")
    assert (start.stdin == "PROMPT") is (agent.prompt_by is PromptBy.STDIN)
    assert ("PROMPT" in start.arguments) is (agent.prompt_by is PromptBy.ARGUMENT)
    on_terminal = launch(agent, state="/s", prompt="PROMPT", tty=True)
    assert (on_terminal.stdin, on_terminal.arguments.count("PROMPT")) == (None, 1)
    assert "-" not in on_terminal.arguments


@each
def test_a_variable_that_moves_state_has_a_place_to_move_it_to(agent: Agent) -> None:
    for kept in agent.state:
        if kept.variable:
            assert relocation_of(agent, kept, state="/s").startswith(f"{kept.variable}=/s")
        assert kept.path.endswith(kept.below)
        assert kept.path.startswith(("{home}", "{work}", "/"))
        assert kept.role
        assert kept.without
    assert set(agent.relocation) <= {kept.variable for kept in agent.state}


@each
def test_no_row_of_state_hides_a_later_one(agent: Agent) -> None:
    for kept in agent.state:
        path = kept.path.replace("{home}", "/h").replace("{work}", "/w").replace("*", "1")
        assert state_of(agent, path, home="/h", work="/w", environment={}) is kept


@each
def test_a_structured_channel_has_a_parser_and_no_channel_reads_text(agent: Agent) -> None:
    assert (agent.parser != "text") is (agent.channel is Channel.JSON)


@each
def test_a_title_is_a_prefix_that_says_a_state(agent: Agent) -> None:
    for prefix, claim in agent.titles:
        assert prefix
        assert isinstance(claim, Idle | Working | Wants)


def test_the_database_of_the_seed_report_is_known_and_can_be_moved() -> None:
    opencode = CATALOG["opencode"]
    kept = state_of(
        opencode, "/h/.local/share/opencode/opencode.db-wal", home="/h", work="/w", environment={}
    )
    assert kept is not None
    assert (kept.role, kept.without) == ("opencode's database", "cannot start")
    assert relocation_of(opencode, kept, state="/s") == "XDG_DATA_HOME=/s/data"


SCREENS = [  # the bottoms of real screens
    (
        "codex",
        Want.TRUST,
        "  Trust this folder? Codex can read, edit, and run files here\n\u203a 1. Trust and continue",
    ),
    ("codex", Want.DECISION, "  Would you like to run the following command?\n\u203a 1. Yes"),
    ("opencode", Want.DECISION, "  ┃  △ Permission required\n  ┃    # Shell command"),
    ("opencode", Want.DECISION, "  ┃   Allow once   Allow always   Reject                ctrl+f fullscreen"),
    ("claude", Want.TRUST, " Quick safety check: Is this a project you created or one you trust?"),
    ("claude", Want.DECISION, " Do you want to proceed?\n \u276f 1. Yes"),
    ("gemini", Want.TRUST, " │ Do you trust the files in this folder?   │\n │ ● 1. Trust folder (work)  │"),
    ("gemini", Want.DECISION, "│ Allow execution of [Shell]?  │\n│ ● 1. Allow once  │"),
    ("gemini", Want.DECISION, "│ ● 1. Allow once  │"),
    ("qwen", Want.DECISION, "   Allow execution of: 'touch, sleep'?\n   \u203a 1. Yes, allow once"),
    ("qwen", Want.DECISION, "  ⠏ Waiting for user confirmation..."),
    ("aider", Want.DECISION, "Add .aider* to .gitignore (recommended)? (Y)es/(N)o [Yes]: "),
]


@every_row(("name", "want", "screen"), SCREENS)
def test_a_screen_that_wants_something_is_recognised(name: str, want: Want, screen: str) -> None:
    wanted = [sign.want for sign in CATALOG[name].wants if sign.pattern.search(screen)]
    assert wanted[0] is want


FOLDER = Path(__file__).parents[1] / "screens"


@pytest.mark.parametrize("name", ["codex", "claude", "gemini", "qwen"])
def test_the_keys_of_a_dialog_are_for_that_dialog_alone(name: str) -> None:
    """On a recorded screen, while what allows just this once is selected, and on no other screen."""
    (dialog,) = CATALOG[name].dialogs
    assert {*dialog.approve, *dialog.deny} <= set(KEYS)
    for path in FOLDER.glob(f"{name}-*.txt"):
        screen = path.read_text("utf-8")
        assert bool(dialog.pattern.search(screen)) is path.name.endswith("-approval.txt"), path.name
        moved = re.sub("[\u276f\u203a●] 1", "  1", screen)
        assert not dialog.pattern.search(moved)


def test_a_dialog_that_does_not_show_what_is_selected_has_no_keys() -> None:
    assert not CATALOG["opencode"].dialogs


def test_an_acp_server_is_told_its_model_in_one_way() -> None:
    for agent in AGENTS:
        if agent.acp is not None:
            start = launch(agent, state="/s", prompt="PROMPT", model="m", base="http://h", acp=True)
            assert "PROMPT" not in (*start.arguments, start.stdin)
            assert (start.model is None) is ("{model}" in agent.acp)
    assert (
        launch(CATALOG["opencode"], state="/s", prompt="x", model="m", base="h", acp=True).model == "other/m"
    )


@pytest.mark.parametrize("name", ["claude", "gemini", "qwen"])
def test_one_that_is_to_ask_leaves_no_decision_to_a_classifier(name: str) -> None:
    for acp in (False, CATALOG[name].acp is not None):
        assert "default" in launch(CATALOG[name], state="/s", prompt="x", acp=acp).arguments


BUSY = [
    ("codex", "• Working (3s • esc to interrupt)\n\u203a Ask Codex to do anything"),
    ("opencode", "   ■■■■■■⬝⬝  esc interrupt            tab agents  ctrl+p commands"),
    ("gemini", " ⠦ Thinking... (esc to cancel, 3s)"),
    ("qwen", "  .. So say we all... (2s · esc to cancel)"),
]
READY = [
    ("codex", "\u203a Ask Codex to do anything\n  mock-model default · /work"),
    ("opencode", '  ┃  Ask anything… "What is the tech stack of this project?"'),
    ("gemini", " >   Type your message or @path/to/file"),
    ("qwen", ">   Type your message or @path/to/file\n  ⏸ Ask permissions (shift + tab to cycle)"),
]


@pytest.mark.parametrize(("name", "screen"), BUSY)
def test_a_busy_screen_wants_nothing(name: str, screen: str) -> None:
    agent = CATALOG[name]
    assert [sign for sign in agent.busy if sign.pattern.search(screen)]
    assert not [sign for sign in agent.wants if sign.pattern.search(screen)]


@pytest.mark.parametrize(("name", "screen"), READY)
def test_a_ready_screen_is_neither_busy_nor_wanting(name: str, screen: str) -> None:
    agent = CATALOG[name]
    assert [pattern for pattern in agent.ready if pattern.search(screen)]
    signs = [sign.pattern for sign in agent.wants] + [sign.pattern for sign in agent.busy]
    assert not [pattern for pattern in signs if pattern.search(screen)]


def test_a_worker_does_not_learn_which_agent_started_it() -> None:
    outer = dict.fromkeys(MARKERS | BORROWED | {"GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"}, "1") | {
        "CODEX_HOME": "/c",
        "PATH": "/bin",
    }
    assert without_outer_agent(outer) == {"CODEX_HOME": "/c", "PATH": "/bin"}


def test_what_a_user_set_stays_where_no_agent_is() -> None:
    settings = {"NO_COLOR": "1", "PAGER": "less", "GIT_CONFIG_KEY_0": "x"}
    assert without_outer_agent(settings) == settings
