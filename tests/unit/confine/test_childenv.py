from typing import Literal

from holdfast.confine.childenv import as_read, final_env, matches, narrow
from holdfast.wire.processes import EnvPolicy
from tests.support.rows import every_row

SERVER = {"PATH": "/bin", "Home": "/root", "LANG": "C", "API_KEY": "k", "my_token": "t", "EDITOR": "vi"}


def policy(
    inherit: Literal["all", "core", "none"] = "all",
    *,
    ignore_default_excludes: bool = True,
    exclude: tuple[str, ...] = (),
    set: dict[str, str] | None = None,
    include_only: tuple[str, ...] = (),
) -> EnvPolicy:
    return EnvPolicy(inherit, ignore_default_excludes, list(exclude), set or {}, list(include_only))


def test_without_a_policy_the_child_sees_exactly_the_request() -> None:
    assert final_env({"A": "1"}, None, SERVER) == {"A": "1"}
    assert final_env({}, None, SERVER) == {}


@every_row(
    ("wish", "expected"),
    [
        (policy("all"), SERVER),
        (policy("none"), {}),
        (policy("core"), {"PATH": "/bin", "Home": "/root", "LANG": "C"}),
        (
            policy(ignore_default_excludes=False),
            {"PATH": "/bin", "Home": "/root", "LANG": "C", "EDITOR": "vi"},
        ),
        (policy("core", exclude=("home", "l?ng")), {"PATH": "/bin"}),
        (policy("core", exclude=("PATH",), set={"PATH": "/set"}, include_only=("p*",)), {"PATH": "/set"}),
        (policy("core", set={"NEW": "1"}, include_only=("lang",)), {"LANG": "C"}),
        (policy("none", ignore_default_excludes=False, set={"SET_KEY": "1"}), {"SET_KEY": "1"}),
    ],
)
def test_the_steps_of_a_policy_come_in_order(wish: EnvPolicy, expected: dict[str, str]) -> None:
    assert final_env({}, wish, SERVER) == expected


def test_the_request_wins_over_the_policy_and_is_not_filtered_by_it() -> None:
    wish = policy("core", ignore_default_excludes=False, set={"LANG": "set"}, include_only=("LANG",))
    assert final_env({"LANG": "mine", "MY_KEY": "1"}, wish, SERVER) == {"LANG": "mine", "MY_KEY": "1"}


@every_row(
    "name",
    [
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "CODEX_GUARDIAN_DECISIONS_API_KEY",
        "NODE_REPL_AUTH_TOKEN",
        "OPENAI_FEDERATION_RULE_ID",
        "OPENAI_IDENTITY_TOKEN_FILE",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
        "node_repl_AUTH_token",
        "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    ],
)
def test_credentials_of_the_server_never_reach_a_child(name: str) -> None:
    assert final_env({name: "1"}, None, {}) == {}
    assert final_env({name: "1"}, policy(set={name: "2"}), {name: "3"}) == {}


def test_the_stdin_switch_is_scrubbed_in_its_exact_spelling_only() -> None:
    env = {"codex_exec_server_exit_on_stdin_close": "1"}
    assert final_env(env, None, {}) == env


def test_narrowing_ignores_where_the_environment_comes_from() -> None:
    assert narrow({"A": "1", "A_KEY": "2"}, policy("none", ignore_default_excludes=False)) == {"A": "1"}


@every_row(
    ("pattern", "name", "expected"),
    [
        ("PATH", "path", True),
        ("PATH", "PATHS", False),
        ("PATHS", "PATH", False),
        ("*", "", True),
        ("", "", True),
        ("", "A", False),
        ("?", "A", True),
        ("?", "", False),
        ("?", "AB", False),
        ("*KEY*", "MY_KEYS", True),
        ("*KEY", "KEY_KEY", True),
        ("*KEY", "KEY_KE", False),
        ("A*B*C", "AxBxBxC", True),
        ("A*B*C", "AxBxBx", False),
        ("A**", "A", True),
        ("A[B]", "A[B]", True),
        ("[A]", "A", False),
        ("A\\B", "A\\B", True),
        ("é?", "ÉX", True),
        ("A.C", "ABC", False),
    ],
)
def test_a_pattern_covers_the_whole_name(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


def test_many_stars_do_not_backtrack_without_end() -> None:
    assert not matches("*a" * 40 + "b", "a" * 1000)


def test_names_are_what_a_child_will_read() -> None:
    assert as_read({"A": "1"}) == {"A": "1"}
    assert as_read({"A=B": "y", "": "x", "=C": "z", "D": ""}) == {"A": "B=y", "D": ""}
    assert as_read({"A=B": "y", "A": "1"}) == {"A": "B=y"}


def test_a_forbidden_name_does_not_hide_behind_an_equals_sign() -> None:
    assert final_env({"OPENAI_IDENTITY_TOKEN_FILE=": "1"}, None, {}) == {}
    assert final_env({}, policy(set={"OPENAI_IDENTITY_TOKEN_FILE=x": "1"}), {}) == {}
