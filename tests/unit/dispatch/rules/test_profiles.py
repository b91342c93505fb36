import msgspec
import pytest

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.board.rules.budget import Budget
from holdfast.board.rules.rows import Run
from holdfast.dispatch.rules.profiles import (
    BUILTIN,
    RESUMES,
    AgentSession,
    WorkerProfile,
    combine,
    decode,
    session_before,
)
from holdfast.errors import UsageError
from tests.support.dispatch import a_run
from tests.support.rows import every_row


def test_every_agent_of_the_catalogue_has_a_profile() -> None:
    assert {one.cli for one in BUILTIN.values()} == set(CATALOG)
    assert BUILTIN["script"].success == "exit"
    assert not BUILTIN["script"].network
    assert all(one.success == "report" for name, one in BUILTIN.items() if name != "script")


def test_a_table_of_the_user_is_a_profile() -> None:
    text = '[reviewer]\nagent = "claude"\nenv = ["A_KEY"]\nmodel = "m"\nmax_runtime_s = 60\n'
    made = combine(text)["reviewer"]
    assert made.name == "reviewer"
    assert made.cli == "claude"
    assert made.program(CATALOG) == CATALOG["claude"].binary
    assert made.env == ("A_KEY",)
    assert made.max_runtime_s == 60


def test_a_launcher_may_bound_what_one_run_uses() -> None:
    made = combine('[x]\nagent = "claude"\nmax_tokens = 5000\nmax_cost = 1.5\n')["x"]
    assert made.budget == Budget(5000, 1_500_000)
    assert BUILTIN["claude"].budget == Budget()


@every_row(
    ("said", "asked_ms"),
    [("true", 600_000), ("30", 30_000), ("0.5", 500), ("false", msgspec.UNSET), ("0", msgspec.UNSET)],
)
def test_a_profile_says_whether_and_for_how_long_somebody_is_asked_about_hosts(
    said: str, asked_ms: object
) -> None:
    named = decode(f'[x]\nagent = "shell"\nask_network = {said}\nhosts = {{ "a.test" = "deny" }}\n')["x"]
    assert named.allowed_hosts is not None
    assert named.allowed_hosts.ask_timeout_ms == asked_ms
    alone = decode(f'[x]\nagent = "shell"\nask_network = {said}\n')["x"]
    assert (alone.allowed_hosts is None) is (asked_ms is msgspec.UNSET)


@pytest.mark.parametrize("said", ["true\nnetwork = true", "-1", "nan", "86401", '"yes"'])
def test_asking_that_cannot_be_meant_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match="ask_network"):
        decode(f'[x]\nagent = "shell"\nask_network = {said}\n')


def test_the_user_replaces_ours_by_name() -> None:
    text = '[script]\nagent = "shell"\nsuccess = "report"\n'
    assert combine(text)["script"].success == "report"
    assert combine(None) == BUILTIN


def test_a_command_is_run_by_a_shell_with_the_prompt_as_one_word() -> None:
    made = decode('[mine]\ncommand = ["my agent", "--prompt={prompt}", "{else}"]\n')["mine"]
    assert made.cli == "shell"
    assert made.program({}) == "my agent"
    assert made.build_prompt("it's $(me)") == """exec 'my agent' '--prompt=it'"'"'s $(me)' '{else}'"""
    assert BUILTIN["codex"].build_prompt("it's") == "it's"


def test_a_session_is_found_and_gone_on_with() -> None:
    codex = BUILTIN["codex"]
    session = codex.session_in('{"type":"thread.started","thread_id":"0199-ab"}\n{"thread_id":"other"}')
    assert session == "0199-ab"
    assert codex.resume_arguments(session) == [
        *("resume", "--json", "--skip-git-repo-check", "{unattended}", "{model}", "0199-ab", "-")
    ]
    assert codex.resume_arguments("") is None
    assert BUILTIN["script"].session_in("anything") == ""


def test_sessions_of_a_known_agent_are_found_whatever_its_launcher_is_called() -> None:
    mine = decode('[mine]\nagent = "claude"\nmodel = "m"')["mine"]
    assert (mine.session, mine.resume) == (BUILTIN["claude"].session, BUILTIN["claude"].resume)
    own = decode('[mine]\nagent = "claude"\nsession = ""')["mine"]
    assert (own.session, own.resume) == ("", ())
    assert BUILTIN["aider"].resume_arguments("x") is None


@every_row(
    "text",
    [
        "[x",
        "x = 1",
        "[x]",
        '["a b"]\nagent = "codex"',
        '[x]\nagent = "nobody"',
        '[x]\nagent = "codex"\ncommand = ["sh"]',
        '[x]\nagent = "codex"\nunknown = 1',
        '[x]\nagent = "codex"\nenv = ["A=B"]',
        '[x]\nagent = "codex"\nmax_runtime_s = 0',
        '[x]\nagent = "codex"\nmax_tokens = 0',
        '[x]\nagent = "codex"\nmax_cost = 0',
        '[x]\nagent = "codex"\nmax_cost = nan',
        '[x]\nagent = "codex"\nsuccess = "maybe"',
        '[x]\nagent = "codex"\nsession = "("',
        '[x]\nagent = "codex"\nsession = "a"\nresume = ["b"]',
        '[x]\nagent = "codex"\nresume = ["b"]',
    ],
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        decode(text)


def test_a_launcher_needs_an_agent_or_a_command() -> None:
    with pytest.raises(UsageError):
        WorkerProfile(name="x")


@every_row("pattern", ["", "/etc/passwd", "a//b", "../x", "a/../b", ".git/config", "./x", "x/"])
def test_what_is_copied_lies_in_the_repository(pattern: str) -> None:
    assert WorkerProfile(name="x", agent="claude", copy=(".env*", "conf/*.local")).copy
    with pytest.raises(UsageError):
        WorkerProfile(name="x", agent="claude", copy=(pattern,))


def run(generation: int, session: str = "", **more: object) -> Run:
    return msgspec.structs.replace(a_run(generation=generation), session=session, **more)


@every_row(
    ("earlier", "session"),
    [
        ([], None),
        ([run(1)], None),
        ([run(1, "s")], AgentSession("s", "r_1")),
        ([run(1, "s"), run(2)], AgentSession("s", "r_1")),  # one that never got as far does not count
        ([run(1, "s"), run(2, "u")], AgentSession("u", "r_2")),
        ([run(1, "s", profile="other")], None),
        ([run(1, "s", host="elsewhere")], None),
        # Gone on with, the session may have another name; its state is where it was.
        ([run(1, "s"), run(2, "u", metadata={RESUMES: "r_1"})], AgentSession("u", "r_1")),
        # Tried, and it did not even name itself: given up.
        ([run(1, "s"), run(2, metadata={RESUMES: "r_1"})], None),
        ([run(1, "s"), run(2, metadata={RESUMES: "r_1"}), run(3, "new")], AgentSession("new", "r_3")),
        # What a worker wrote there is believed about its own task alone.
        ([run(1, "s", metadata={RESUMES: "../../etc"})], AgentSession("s", "r_1")),
        ([run(1, "s", metadata={RESUMES: ["r_1"]})], AgentSession("s", "r_1")),
        ([run(8, "later")], None),
    ],
)
def test_the_newest_session_that_can_be_gone_on_with(
    earlier: list[Run], session: AgentSession | None
) -> None:
    assert session_before(earlier, run(5)) == session


def test_hosts_of_a_profile_have_every_form_that_a_command_line_has() -> None:
    text = """
[x]
agent = "claude"
[x.hosts]
"GET,HEAD https://api.test/v1/" = "allow"
"*.wild.test" = "allow"
presets = ["pip", "npm"]
limits = ["500M", "api.test=20conn/s"]
[x.hosts.secrets]
TOKEN = "api.test"
"""
    made = decode(text)["x"]
    assert made.presets == ("pip", "npm")
    assert made.allowed_hosts is not None
    # The key's own rule, which is for the whole host, lifts nothing.
    assert made.allowed_hosts.allow == ["GET,HEAD https://api.test/v1/", "*.wild.test"]
    assert made.allowed_hosts.limits == ["500M", "api.test=20conn/s"]
    for wrong, why in (
        ('presets = ["pypi"]', "there is no such preset"),
        ("presets = true", "must be a list of clients"),
        ('limits = ["fast"]', "is no limit"),
        ('"get https://api.test/" = "allow"', "is no rule about hosts"),
        ('"https://api.test/a/../b" = "allow"', "is no rule about hosts"),
    ):
        with pytest.raises(UsageError, match=why):
            decode(f'[x]\nagent = "claude"\n[x.hosts]\n{wrong}\n')
