"""What real screens say of attempts and of turns that failed."""

from pathlib import Path

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.screens import MAX_LATER, read_failed_turn, read_terminal
from holdfast.agents.evidence.evidence import Evidence, Failure, Retrying, Source, Want, Wants, Working
from tests.support.rows import every_row

FOLDER = Path(__file__).parents[1] / "screens"


def lines_of(name: str) -> list[str]:
    """Without its title."""
    return (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()[1:]


def last_of(name: str) -> Evidence:
    return read_terminal(lines_of(name), CATALOG[name.split("-")[0]], 10.0)[-1]


@every_row(
    ("name", "failure", "words"),
    [
        ("codex-failed", Failure.AUTH, "unexpected status 401 Unauthorized: Incorrect API key provided."),
        ("opencode-failed", Failure.AUTH, "Incorrect API key provided."),
        ("qwen-failed", Failure.AUTH, "[API Error: 401 Incorrect API key provided.]"),
        ("gemini-failed", Failure.AUTH, '[API Error: {"error":{"code":401'),
        ("claude-failed", Failure.MODEL, "There's an issue with the selected model"),
    ],
)
def test_a_screen_that_waits_tells_that_the_turn_before_failed(
    name: str, failure: Failure, words: str
) -> None:
    claim = last_of(name).claim
    assert isinstance(claim, Wants)
    assert (claim.want, claim.failure) == (Want.PROMPT, failure)
    assert claim.question.startswith(f"its last turn failed: {words}")


def test_a_choice_whether_to_keep_trying_tells_what_failed() -> None:
    claim = last_of("gemini-again").claim
    assert isinstance(claim, Wants)
    assert (claim.want, claim.failure) == (Want.DECISION, Failure.MODEL)
    assert claim.question.startswith('its last turn failed: Model "scripted-model" was not found')


@every_row(
    "name",
    sorted(path.stem for path in FOLDER.glob("*.txt") if not path.stem.endswith(("-failed", "-again"))),
)
def test_no_other_screen_tells_that(name: str) -> None:
    assert read_failed_turn(lines_of(name), CATALOG[name.split("-")[0]]) == ""


@every_row(
    ("name", "later"),
    [
        ("codex-failed", ["\u203a again", "", "• Done."]),
        ("opencode-failed", ["Done.", "", "     ▣  Build · scripted-model · 2s"]),
        ("qwen-failed", ["  > again", "  ✦ Done."]),
        ("gemini-failed", [" > again", "✦ Done."]),
        ("claude-failed", ["\u276f again", "", "● Done."]),
        ("codex-failed", ["a line of something else"] * (MAX_LATER + 1)),
    ],
)
def test_a_failure_that_something_newer_stands_below_is_of_an_earlier_turn(
    name: str, later: list[str]
) -> None:
    agent, lines = CATALOG[name.split("-")[0]], lines_of(name)
    assert read_failed_turn(lines, agent)
    assert not read_failed_turn([*lines, "", *later], agent)


@every_row(
    ("agent", "screen", "claim"),
    [
        ("claude", lines_of("claude-retrying"), Retrying(6, 10, Failure.AUTH, 401, 15.0)),
        ("opencode", lines_of("opencode-retrying"), Retrying(5, None, Failure.PROVIDER, None, 43.0)),
        (
            "opencode",
            [
                "   ⬝⬝■■ Bad Gateway: h cannot be reached: Name or se… [retrying in 4s attempt #2",
                " esc interrupt",
            ],
            Retrying(2, None, Failure.PROVIDER, None, 14.0),
        ),
        ("codex", ["• Reconnecting... 1/5 (0s • esc to interrupt)"], Retrying(1, 5, None)),
        (
            "codex",
            ["◦ Reconnecting... waiting for network (25s • esc to interrupt)", "  └ Connection failed: x"],
            Retrying(1, None, Failure.NETWORK),
        ),
        ("codex", ["◦ Reconnecting... 5/5 (5s • esc to interrupt)"], Retrying(5, 5, None)),
    ],
)
def test_a_screen_tells_of_another_attempt_beside_the_work(
    agent: str, screen: list[str], claim: Retrying
) -> None:
    *_, work, attempt = read_terminal(screen, CATALOG[agent], 10.0)
    assert isinstance(work.claim, Working)
    assert attempt.source is Source.SCREEN
    assert attempt.claim == claim


def test_what_an_agent_says_of_attempts_above_its_prompt_is_none() -> None:
    screen = ["• It says: Reconnecting... 1/5", "", "\u203a Ask Codex to do anything", "  m default · /w"]
    (found,) = read_terminal(screen, CATALOG["codex"], 10.0)
    assert found.claim == Wants(Want.PROMPT)
