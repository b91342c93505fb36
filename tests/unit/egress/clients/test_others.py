"""Which hosts git and agents are set up for."""

import pytest

from holdfast.egress.clients.others import find_git, find_model
from tests.unit.egress.clients.scene import machine

OPENCODE = "/home/u/.config/opencode/opencode.json"


def test_git_knows_what_its_user_wrote() -> None:
    text = (
        '[user]\nname = x\n[url "https://git.test/"]\ninsteadOf = gh:\n'
        '[credential "https://c.test"]\nhelper = h\n'
        '[remote "up"]\nurl = git@ssh.test:a/b.git\nfetch = +refs\n[http]\nsslVerify = true\n'
    )
    found = find_git(machine({"/home/u/.gitconfig": text}))
    assert [url for url, _ in found] == ["https://git.test/", "https://c.test", "git@ssh.test:a/b.git", ""]
    assert find_git(machine({"/home/u/.gitconfig": text}, {"GIT_CONFIG_GLOBAL": "/none"})) == []
    assert find_git(machine({"/home/u/w/.git/config": text})) == []


@pytest.mark.parametrize(
    ("files", "environ", "urls"),
    [
        ({}, {}, []),
        ({}, {"OPENAI_API_KEY": "k"}, ["https://api.openai.com/"]),
        ({}, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://m.test:8000/v1"}, ["http://m.test:8000/v1"]),
        ({}, {"ANTHROPIC_BASE_URL": "https://a.test"}, ["https://a.test", "https://a.test"]),
        (
            {"/home/u/.codex/config.toml": '[model_providers.x]\nbase_url = "https://x.test/v1"'},
            {},
            ["https://x.test/v1"],
        ),
        (
            {"/home/u/.claude/settings.json": '{"env": {"ANTHROPIC_BASE_URL": "https://y.test"}}'},
            {},
            ["https://y.test"],
        ),
        (
            {OPENCODE: '{"provider": {"p": {"options": {"baseURL": "https://z.test"}}}}'},
            {},
            ["https://z.test"],
        ),
        ({"/home/u/.codex/config.toml": "x = [[["}, {}, []),
    ],
)
def test_models(files: dict[str, str], environ: dict[str, str], urls: list[str]) -> None:
    assert [url for url, _ in find_model(machine(files, environ))] == urls
