"""The records: complete, without contradiction, and good for a start."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.agents.catalog.agent import (
    Agent,
    PromptBy,
    launch,
    relocation_of,
    state_files,
    state_of,
)
from holdfast.agents.catalog.catalog import (
    CATALOG,
    PARSERS,
    log_parser_of,
    parser_of,
    text_parser_of,
)
from holdfast.agents.catalog.known import read_shipped
from holdfast.agents.catalog.output import TextLines
from holdfast.agents.evidence.evidence import (
    Drift,
    Evidence,
    Failure,
    Idle,
    Result,
    Retrying,
    Trouble,
    Want,
    Wants,
    Working,
)
from holdfast.agents.terminal.keys import KEYS, encode_click
from tests.support.rows import every_row
from tests.support.wording import in_words

KNOWN = {**CATALOG, **read_shipped()}
AGENTS = list(KNOWN.values())
each = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
NAMES = {"codex", "opencode", "claude", "gemini", "qwen", "aider", "hermes", "shell"}
RECORDED = Path(__file__).parents[1] / "recorded"
RECORDINGS = sorted(RECORDED.glob("*/*.jsonl"))


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
    ("goose", Want.DECISION, "◆  Goose would like to call the above tool, do you allow?\n│  ○ Allow"),
    ("goose", Want.DECISION, "│  ● Allow (Allow the tool call once)\n│  ○ Always Allow\n│  ○ Deny"),
    ("copilot", Want.TRUST, "│ Do you trust the files in this folder?   │\n│ \u276f 1. Yes"),
    ("copilot", Want.DECISION, "│ Do you want to run this command?   │\n│ \u276f 1. Yes"),
    ("aider", Want.DECISION, "Add .aider* to .gitignore (recommended)? (Y)es/(N)o [Yes]: "),
]


@every_row(("name", "want", "screen"), SCREENS)
def test_a_screen_that_wants_something_is_recognised(name: str, want: Want, screen: str) -> None:
    wanted = [sign.want for sign in KNOWN[name].wants if sign.pattern.search(screen)]
    assert wanted[0] is want


@every_row(
    ("name", "screen", "ready", "busy"),
    [
        ("goose", "> Enter to send · Ctrl+J newline", True, False),
        ("goose", "◒  Brewing binary brilliance...  (Ctrl+C to interrupt)", False, True),
        ("goose", "◇  Goose would like to call the above tool, do you allow?\n│  Allow", False, False),
        ("copilot", " ← open sidebar · Interactive · / commands · ? help · tab next tab", True, False),
        ("copilot", " ◎ Working esc esc edit prompt          scripted-model", False, True),
    ],
)
def test_a_screen_of_a_record_says_whether_it_works(name: str, screen: str, ready: bool, busy: bool) -> None:
    agent = KNOWN[name]
    assert any(sign.search(screen) for sign in agent.ready) is ready
    assert any(sign.pattern.search(screen) for sign in agent.busy) is busy
    assert not any(sign.pattern.search(screen) for sign in agent.wants)


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


@every_row(
    ("question", "asks"),
    [
        ("Do you want to create new.txt?", True),
        ("Do you want to make this edit to new.txt?", True),
        ("Do you want to proceed?", True),
        ("Do you want to use this API key?", False),
    ],
)
def test_claude_asks_for_each_kind_of_act_in_the_same_dialog(question: str, asks: bool) -> None:
    (dialog,) = CATALOG["claude"].dialogs
    choices = " \u276f 1. Yes\n   2. Yes, and switch to accept edits for this session (shift+tab)\n   3. No"
    assert bool(dialog.pattern.search(f"{question}\n{choices}")) is asks
    assert not dialog.pattern.search(f"{question}\n{choices}".replace(" \u276f 1", "   1"))


def test_a_dialog_that_does_not_show_what_is_selected_is_clicked_and_has_no_keys() -> None:
    (dialog,) = CATALOG["opencode"].dialogs
    assert (dialog.approve, dialog.click) == ((), "Allow once")
    for path in FOLDER.glob("opencode-*.txt"):
        screen = path.read_text("utf-8")
        assert bool(dialog.pattern.search(screen)) is path.name.endswith("-approval.txt"), path.name
    lines = (FOLDER / "opencode-approval.txt").read_text("utf-8").splitlines()[1:]
    assert encode_click(dialog.click, lines) == b"\x1b[<0;7;14M\x1b[<0;7;14m"


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


@dataclass(frozen=True)
class Line:
    at: float
    stream: str
    text: str
    claims: tuple[str, ...]


def lines_of(path: Path) -> list[Line]:
    rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()[1:]]
    return [Line(row["at"], row["from"], row["line"], tuple(row["claims"])) for row in rows]


def replayed(agent: str, lines: list[Line]) -> list[tuple[Line, list[Evidence]]]:
    parsers = {
        "stdout": parser_of(KNOWN[agent]),
        "stderr": text_parser_of(KNOWN[agent]),
        "log": log_parser_of(KNOWN[agent]),
    }
    return [(line, parsers[line.stream].feed(line.text, line.at)) for line in lines]


def evidence_of(agent: str, case: str) -> list[Evidence]:
    seen = replayed(agent, lines_of(RECORDED / agent / f"{case}.jsonl"))
    return [evidence for _, found in seen for evidence in found]


@every_row("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_line_means_what_it_meant(path: Path) -> None:
    for line, found in replayed(path.parent.name, lines_of(path)):
        assert tuple(map(in_words, found)) == line.claims, line.text


@every_row("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recording_holds_nothing_unknown_and_nothing_private(path: Path) -> None:
    agent = path.parent.name
    header = json.loads(path.read_text("utf-8").splitlines()[0])
    versions = KNOWN[agent].versions
    assert versions is not None
    assert header["version"] in versions
    unknown = [
        item
        for _, found in replayed(agent, lines_of(path))
        for item in found
        if isinstance(item.claim, Drift)
    ]
    assert unknown == []
    assert "mock-key" not in path.read_text("utf-8")


FAILURES = {
    "401": {Failure.AUTH},
    "404": {Failure.MODEL},
    "429": {Failure.RATE_LIMIT},
    "500": {Failure.PROVIDER},
    "dns": {Failure.NETWORK},
    "down": {Failure.NETWORK},
    "logged-out": {Failure.AUTH},
    "truncated": {Failure.PROVIDER},
    "usage-limit": {Failure.QUOTA},
    "outside": {Failure.PERMISSION},
    "read-only-home": {Failure.SANDBOX},
}
# What only some of them say.
SPOKEN = {(name, "refused"): {Failure.PERMISSION} for name in ("cline", "goose")}
# Logged out means a provider of its own that was out of reach.
OWN_PROVIDER = {"cline", "continue", "kilo"}
# What the CLI does not say: the classifier needs another witness there, or the exit.
SILENT = {
    ("aider", "read-only-home"),  # works; its complaint about a version file is no error
    ("claude", "read-only-home"),  # works, and saves nothing
    ("copilot", "truncated"),  # a stream without its end, in words that name no provider
    ("continue", "429"),  # tries again for minutes without a word
    ("continue", "500"),  # likewise
    ("continue", "truncated"),  # half an answer, taken for one
    ("goose", "truncated"),  # half an answer, taken for one
    ("hermes", "truncated"),  # four times half an answer, taken for one
    ("pi", "truncated"),  # half an answer, taken for one
    ("qwen", "truncated"),  # attempts without a cause
}


@every_row("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_fault_is_named_by_what_the_cli_says(path: Path) -> None:
    agent, case = path.parent.name, path.stem
    said = {
        item.claim.failure
        for item in evidence_of(agent, case)
        if isinstance(item.claim, Result | Retrying | Trouble) and item.claim.failure is not None
    }
    meant = "dns" if case == "logged-out" and agent in OWN_PROVIDER else case.split("-0.")[0]
    wanted = FAILURES.get(meant, set()) | SPOKEN.get((agent, case), set())
    assert said == (set() if (agent, case) in SILENT else wanted)


@every_row("agent", ["codex", "opencode", "claude", "gemini", "qwen"])
def test_success_ends_with_a_result_that_counts_tokens(agent: str) -> None:
    for case in ("success", "tool"):
        last = evidence_of(agent, case)[-1].claim
        assert isinstance(last, Result)
        assert last.ok
        assert last.usage is not None
        assert last.usage.input_tokens >= 100
        assert last.usage.output_tokens >= 20


def test_every_record_names_a_parser_that_exists() -> None:
    assert {agent.parser for agent in CATALOG.values()} <= PARSERS


def test_a_key_is_never_in_the_evidence() -> None:
    key = "mock-key-12345678"
    for agent in CATALOG.values():
        for parser in (parser_of(agent, [key]), text_parser_of(agent, [key])):
            for line in (f"Error: 401 {key}", f'{{"type":"{key}"}}', f'{{"type":"error","message":"{key}"}}'):
                assert key not in repr(parser.feed(line, 0.0))


def test_stderr_of_a_shell_is_work_and_of_agents_is_notices() -> None:
    assert text_parser_of(CATALOG["shell"]).feed("hello", 0.0) != []
    assert text_parser_of(CATALOG["codex"]).feed("hello", 0.0) == []
    assert text_parser_of(CATALOG["hermes"]).feed("hello", 0.0) == []
    assert isinstance(parser_of(CATALOG["shell"]), TextLines)
