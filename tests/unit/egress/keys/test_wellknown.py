"""Which variables hold a key that can be told without being named."""

from holdfast.egress.keys.wellknown import find_known_keys

OPENAI = "sk-proj-zQ8vT3kLmN5pR7wXyB2c"
GITHUB = "ghp_0123456789abcdefABCDEF0123456789abcd"


def test_keys_are_told_by_their_variable_or_their_shape() -> None:
    env = {
        "OPENAI_API_KEY": OPENAI,
        "GH_TOKEN": GITHUB,
        "WHATEVER": GITHUB.replace("0", "9"),
        "CODEX_API_KEY": OPENAI,
        "ANTHROPIC_API_KEY": "sk-ant-api03-abcdefghijklmnop",
        "PATH": "/bin",
    }
    found = {wishes[0].name: {wish.host for wish in wishes} for wishes, _ in find_known_keys(env)}
    github = {"api.github.com", "github.com", "uploads.github.com"}
    assert found == {"OPENAI_API_KEY": {"api.openai.com"}, "GH_TOKEN": github, "WHATEVER": github}


def test_what_cannot_be_kept_outside_is_left_as_it_is() -> None:
    assert find_known_keys({"OPENAI_API_KEY": "short"}) == []
    assert find_known_keys({"OPENAI_API_KEY": ""}) == []
    assert find_known_keys({"A-B": GITHUB}) == []
