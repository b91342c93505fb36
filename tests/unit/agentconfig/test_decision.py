"""The decision matrix, row by row."""

import json
from dataclasses import replace

from holdfast.agentconfig.decision import (
    ENCLOSED,
    FULL_ALLOWED,
    MATRIX,
    Admin,
    AgentMode,
    AgentName,
    Boundary,
    CodexFacts,
    ConfigDecision,
    ConfigRequest,
    Egress,
    MatrixRow,
    Severity,
    Version,
    Writes,
    choose_approval,
    choose_settings,
    decide,
    inside,
    parse_version,
    render_flags,
)
from holdfast.agentconfig.settings import Setting, settings
from tests.support.rows import every_row

FACTS = CodexFacts("linux", (0, 166, 0))
NEW: Version = (0, 166, 0)
CONTAINER, VM = Boundary.CONTAINER, Boundary.VM
READ_ONLY = Admin(modes=("read-only",))
NO_FULL = Admin(modes=("read-only", "workspace-write"))
EVERYTHING, NOTHING, GIT = (
    ConfigRequest(writes=Writes.EVERYTHING),
    ConfigRequest(writes=Writes.NOTHING),
    ConfigRequest(writes=Writes.GIT),
)
FULL, HOSTS = (
    ConfigRequest(network=Egress.FULL),
    ConfigRequest(network=Egress.HOSTS, hosts=("a.example",)),
)


@every_row(
    ("text", "version"),
    [
        ("codex-cli 0.166.0\n", (0, 166, 0)),
        ("codex-cli 0.150.0-alpha.3", (0, 150, 0)),
        ("1.2.3 4.5.6", (1, 2, 3)),
        ("codex", None),
        ("codex 0.166", None),
        ("codex 1.2.3.4", None),
        ("", None),
    ],
)
def test_a_version_is_read_or_not_known(text: str, version: Version | None) -> None:
    assert parse_version(text) == version


def test_the_board_is_a_writable_root_once() -> None:
    assert ConfigRequest(roots=("/a", "/b"), board="/c").writable == ("/a", "/b", "/c")
    assert ConfigRequest(roots=("/a",), board="/a").writable == ("/a",)
    assert ConfigRequest().writable == ()


def test_a_report_is_plain_and_complete() -> None:
    decided = settings([Setting(("sandbox_mode",), "read-only")])
    decision = ConfigDecision(
        "r", AgentMode.READ_ONLY, Severity.OK, decided, ("-s",), "because", ("do",), ("note",)
    )
    assert json.loads(json.dumps(decision.report())) == {
        "row": "r",
        "mode": "read-only",
        "severity": "ok",
        "settings": [{"key": ["sandbox_mode"], "value": "read-only"}],
        "flags": ["-s"],
        "reason": "because",
        "remedies": ["do"],
        "notes": ["note"],
    }


def test_workspace_write_sets_all_four_keys_also_those_that_are_defaults() -> None:
    decided = choose_settings(AgentMode.WORKSPACE, FACTS, ConfigRequest())
    table = {item.key[1]: item.value for item in decided.items if item.key[0] == "sandbox_workspace_write"}
    assert table == {
        "network_access": False,
        "writable_roots": (),
        "exclude_slash_tmp": False,
        "exclude_tmpdir_env_var": False,
    }
    assert decided.get("sandbox_mode") == "workspace-write"
    assert decided.get("default_permissions") is None


def test_a_profile_never_stands_beside_a_mode() -> None:
    decided = choose_settings(
        AgentMode.PROFILE, FACTS, ConfigRequest(network=Egress.HOSTS, hosts=("a.example",))
    )
    assert decided.get("default_permissions") == "holdfast"
    assert decided.get("sandbox_mode") is None
    assert decided.get("permissions", "holdfast", "network", "domains", "a.example") == "allow"
    assert decided.get("features", "network_proxy") is True


def test_a_profile_that_commits_guards_what_git_would_run() -> None:
    wish = ConfigRequest(writes=Writes.GIT, git=("/r/.git", "/r/.git/worktrees/w"), roots=("/x",))
    decided = choose_settings(AgentMode.PROFILE, FACTS, wish)
    rights = {item.key[3]: item.value for item in decided.items if item.key[2:3] == ("filesystem",)}
    assert rights["/r/.git"] == rights["/r/.git/worktrees/w"] == rights["/x"] == "write"
    assert rights["/r/.git/hooks"] == rights["/r/.git/config"] == "read"
    assert decided.get("permissions", "holdfast", "network", "enabled") is False


def test_every_name_of_the_project_gets_a_trust_decision() -> None:
    wish = ConfigRequest(projects=("/link", "/real"))
    untrusted = choose_settings(AgentMode.WORKSPACE, FACTS, wish)
    assert [item.value for item in untrusted.of("trust")] == ["untrusted", "untrusted"]
    trusted = choose_settings(AgentMode.WORKSPACE, CodexFacts("linux", (0, 166, 0), trusted=True), wish)
    assert [item.value for item in trusted.of("trust")] == ["trusted", "trusted"]


def test_a_key_that_the_version_does_not_know_is_not_written() -> None:
    key = ("features", "unbounded_connection_retries")
    assert (
        choose_settings(AgentMode.WORKSPACE, CodexFacts("linux", (0, 147, 9)), ConfigRequest()).get(*key)
        is None
    )
    assert (
        choose_settings(AgentMode.WORKSPACE, CodexFacts("linux", (0, 148, 0)), ConfigRequest()).get(*key)
        is False
    )
    assert choose_settings(AgentMode.WORKSPACE, CodexFacts("linux", None), ConfigRequest()).get(*key) is False


def test_nobody_is_asked_unless_an_administrator_insists() -> None:
    assert choose_approval(FACTS) == "never"
    assert (
        choose_approval(CodexFacts("linux", None, admin=Admin(approvals=("never", "on-request")))) == "never"
    )
    assert choose_approval(CodexFacts("linux", None, admin=Admin(approvals=("on-request",)))) == "on-request"


def test_flags_pin_the_mode_and_all_four_keys() -> None:
    decided = choose_settings(AgentMode.WORKSPACE, FACTS, ConfigRequest(roots=('/a "b"',), projects=("/p",)))
    assert render_flags(AgentMode.WORKSPACE, decided) == (
        "-s",
        "workspace-write",
        "-c",
        'approval_policy="never"',
        "-c",
        "sandbox_workspace_write.network_access=false",
        "-c",
        'sandbox_workspace_write.writable_roots=["/a \\"b\\""]',
        "-c",
        "sandbox_workspace_write.exclude_slash_tmp=false",
        "-c",
        "sandbox_workspace_write.exclude_tmpdir_env_var=false",
        "--strict-config",
    )


def test_flags_of_a_profile_name_no_mode_since_that_would_win() -> None:
    found = render_flags(AgentMode.PROFILE, choose_settings(AgentMode.PROFILE, FACTS, ConfigRequest()))
    assert "-s" not in found
    assert 'default_permissions="holdfast"' in found


def linux(
    version: Version | None = NEW,
    *,
    userns: bool | None = True,
    netns: bool | None = True,
    proc: bool | None = True,
    bubblewrap: tuple[int, int] | None = None,
    boundary: Boundary = Boundary.NONE,
    admin: Admin = Admin(),  # noqa: B008 - immutable
    home: str = "",
) -> CodexFacts:
    return CodexFacts(
        "linux", version, userns, netns, proc, bubblewrap, boundary=boundary, admin=admin, home=home
    )


CLAUDE = CodexFacts("linux", (2, 1, 325), True, True, True, agent=AgentName.CLAUDE)
OPENCODE = CodexFacts("linux", (1, 18, 33), agent=AgentName.OPENCODE)
CASES: list[tuple[str, CodexFacts, ConfigRequest]] = [
    ("too-old", linux((0, 130, 9)), ConfigRequest()),
    ("too-old", linux((0, 130, 9), boundary=CONTAINER), EVERYTHING),
    ("home-exposed", linux(home="/w/home"), ConfigRequest(workspace="/w")),
    ("home-exposed", linux(home="/b/home/.codex"), ConfigRequest(board="/b")),
    ("home-exposed", linux(home="/srv/h"), ConfigRequest(roots=("/",))),
    (
        "home-exposed",
        CodexFacts("linux", NEW, True, True, True, home="/tmp/h", temporary=("/tmp",)),
        ConfigRequest(),
    ),
    ("everything-enclosed", linux(boundary=CONTAINER), EVERYTHING),
    ("everything-enclosed", linux(boundary=VM, userns=False), EVERYTHING),
    ("everything", linux(), EVERYTHING),
    ("everything", linux(boundary=Boundary.USER), EVERYTHING),
    ("everything", linux(boundary=CONTAINER, admin=NO_FULL), EVERYTHING),
    ("profiles-forced", linux(admin=Admin(profiles=True)), FULL),
    ("profiles-forced", linux(admin=Admin(profiles=True)), HOSTS),
    ("profiles-forced-offline", linux(admin=Admin(profiles=True)), ConfigRequest()),
    ("nothing-forbidden", linux(admin=Admin(modes=("workspace-write",))), NOTHING),
    ("nothing-online", linux(), ConfigRequest(network=Egress.FULL, writes=Writes.NOTHING)),
    ("admin-read-only", linux(admin=READ_ONLY), ConfigRequest()),
    ("admin-forbids", linux(admin=READ_ONLY), FULL),
    ("admin-forbids", linux(admin=Admin(modes=())), ConfigRequest()),
    ("nothing", linux(admin=READ_ONLY), NOTHING),
    ("no-userns", linux(userns=False, admin=READ_ONLY), ConfigRequest()),
    ("no-userns", linux(userns=False, admin=Admin(profiles=True)), ConfigRequest()),
    ("unsupported-enclosed", CodexFacts("wsl1", NEW, boundary=CONTAINER), ConfigRequest()),
    ("unsupported-enclosed", CodexFacts("darwin", NEW, nested=True, boundary=VM), ConfigRequest()),
    ("unsupported-enclosed", linux(proc=False, bubblewrap=(0, 12), boundary=CONTAINER), ConfigRequest()),
    ("unsupported", linux(proc=False, bubblewrap=(0, 12)), ConfigRequest()),
    ("unsupported", CodexFacts("android", NEW), ConfigRequest()),
    ("unsupported", CodexFacts("wsl1", NEW, boundary=CONTAINER, admin=NO_FULL), ConfigRequest()),
    ("windows-odd", CodexFacts("windows", NEW, windows_sandbox="soft", boundary=CONTAINER), ConfigRequest()),
    ("windows-off-enclosed", CodexFacts("windows", NEW, boundary=VM), ConfigRequest()),
    ("windows-off", CodexFacts("windows", NEW), ConfigRequest()),
    ("workspace", CodexFacts("windows", NEW, windows_sandbox="elevated"), ConfigRequest()),
    ("no-userns-enclosed", linux(userns=False, boundary=CONTAINER), ConfigRequest()),
    ("no-userns", linux(userns=False), FULL),
    ("no-userns", linux(userns=False, boundary=Boundary.USER), ConfigRequest()),
    ("no-userns", linux(userns=False, boundary=VM, admin=NO_FULL), ConfigRequest()),
    ("no-netns", linux(netns=False), ConfigRequest()),
    ("no-netns", linux(netns=False, boundary=CONTAINER), HOSTS),
    ("workspace", linux(netns=False), FULL),
    ("nothing-unseen", linux(None), NOTHING),
    ("nothing", linux(), NOTHING),
    ("hosts-unseen", linux(userns=None), HOSTS),
    ("hosts", linux(), HOSTS),
    ("hosts", CodexFacts("darwin", NEW), HOSTS),
    ("git-unseen", linux(None), GIT),
    ("git", linux(), GIT),
    ("workspace-unseen", linux(None), ConfigRequest()),
    ("workspace-unseen", linux(netns=None), FULL),
    ("workspace", linux(), ConfigRequest()),
    ("workspace", linux(proc=False, bubblewrap=(0, 11)), ConfigRequest()),
    ("workspace", CodexFacts("darwin", NEW), FULL),
    ("too-old", replace(CLAUDE, version=(2, 0, 9)), ConfigRequest()),
    ("too-old", replace(OPENCODE, version=(1, 1, 0)), ConfigRequest()),
    ("home-exposed", replace(CLAUDE, home="/w/.codex"), ConfigRequest(workspace="/w")),
    ("no-userns", replace(CLAUDE, userns=False), FULL),
    ("no-netns-proxied", replace(CLAUDE, netns=False), FULL),
    ("nothing", CLAUDE, ConfigRequest(writes=Writes.NOTHING, network=Egress.FULL)),
    ("workspace", replace(CLAUDE, proc=False, bubblewrap=(0, 12)), ConfigRequest()),
    ("workspace-unseen", CodexFacts("windows", (2, 1, 325), agent=AgentName.CLAUDE), ConfigRequest()),
    ("nothing-unconfined", OPENCODE, ConfigRequest(writes=Writes.NOTHING)),
    ("unconfined", OPENCODE, ConfigRequest()),
    ("unconfined", replace(OPENCODE, os="wsl1", userns=False), HOSTS),
    ("everything", OPENCODE, EVERYTHING),
    ("everything-enclosed", replace(OPENCODE, boundary=CONTAINER), EVERYTHING),
]


@every_row(("row", "facts", "wish"), CASES)
def test_the_first_row_that_matches_decides(row: str, facts: CodexFacts, wish: ConfigRequest) -> None:
    assert decide(facts, wish).row == row


def test_every_row_has_a_case_and_a_name_of_its_own() -> None:
    names = [row.id for row in MATRIX]
    assert len(set(names)) == len(names)
    assert {case[0] for case in CASES} == set(names)


@every_row("row", MATRIX, ids=lambda row: row.id)
def test_what_is_refused_has_a_remedy_and_full_access_a_boundary(row: MatrixRow) -> None:
    assert (row.mode is AgentMode.NONE) == (row.severity is Severity.REFUSED)
    assert row.remedies or row.severity is Severity.OK
    if row.mode is AgentMode.FULL:
        assert {ENCLOSED, FULL_ALLOWED} <= set(row.when)


def test_what_is_refused_says_nothing_to_write_or_launch() -> None:
    decision = decide(linux(userns=False), ConfigRequest(projects=("/p",)))
    assert decision.settings.items == ()
    assert decision.flags == ()


def test_a_wish_for_everything_is_full_access_inside_the_boundary_only() -> None:
    decision = decide(linux(boundary=CONTAINER), EVERYTHING)
    assert decision.settings.get("sandbox_mode") == "danger-full-access"
    assert decision.flags[:2] == ("-s", "danger-full-access")
    assert decision.notes


def test_only_codex_is_told_keys_and_options_of_codex() -> None:
    for facts in (CLAUDE, OPENCODE):
        decision = decide(facts, ConfigRequest())
        assert decision.settings.items == ()
        assert decision.flags == ()
        assert any(f"holdfast config {facts.agent} check" in remedy for remedy in decision.remedies)


def board(wish: ConfigRequest) -> ConfigDecision:
    return decide(linux(home="/home/u/.codex"), wish)


def test_a_worker_of_a_board_gets_its_directory_alone_and_reads_why_a_broker_is_better() -> None:
    decision = board(ConfigRequest(board="/srv/board", projects=("/w",)))
    assert decision.settings.get("sandbox_workspace_write", "writable_roots") == ("/srv/board",)
    assert any("broker" in note for note in decision.notes)
    assert not any("broker" in note for note in board(ConfigRequest(projects=("/w",))).notes)


def test_what_the_administrator_and_the_host_take_away_is_said() -> None:
    asked = decide(linux(admin=Admin(approvals=("on-request",))), ConfigRequest())
    assert asked.settings.get("approval_policy") == "on-request"
    assert any("a person's approval" in note for note in asked.notes)
    assert any("/proc" in note for note in decide(linux(proc=False), ConfigRequest()).notes)
    assert any(
        "trusted" in note for note in decide(CodexFacts("darwin", NEW, trusted=True), ConfigRequest()).notes
    )


def test_codex_guards_its_own_directory_below_a_root() -> None:
    assert decide(linux(home="/home/u/.codex"), ConfigRequest(workspace="/home/u")).row == "workspace"


@every_row(
    ("path", "root", "expected"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/", True),
        ("/a", "/a/b", False),
    ],
)
def test_inside_is_by_whole_names(path: str, root: str, expected: bool) -> None:
    assert inside(path, root) is expected


def test_one_that_is_too_old_is_refused_with_what_to_type() -> None:
    for facts, package in (
        (linux((0, 121, 0)), "@openai/codex"),
        (linux((0, 130, 0)), "@openai/codex"),
        (replace(CLAUDE, version=(2, 0, 9)), "@anthropic-ai/claude-code"),
    ):
        decision = decide(facts, ConfigRequest())
        assert decision.row == "too-old"
        assert decision.remedies[0].startswith(f"npm install -g {package}@latest")
        assert f"holdfast worker run {facts.agent}" in decision.remedies[1]
