"""What counts as a credential."""

from holdfast.sandbox.policy.credentials import credentials, find_secrets, is_credential
from tests.support.rows import every_row


def test_credentials_are_denied_unless_something_around_them_is_granted() -> None:
    denied = credentials("/home/me/", granted=["/home/me/.codex/", "/home/me/.config"])
    assert "/home/me/.ssh" in denied
    assert "/home/me/.codex/auth.json" not in denied
    assert "/home/me/.config/gh" not in denied
    assert "/home/me/.ssh" in credentials("/home/me", granted=["/home/me/.s"])


@every_row("path", ["/root/.ssh", "/home/other/.ssh/id_rsa", "/h/.config/gh/hosts.yml", "/h/.netrc"])
def test_a_credential_is_one_in_whosever_home(path: str) -> None:
    assert is_credential(path)


@every_row("path", ["/h/.sshd", "/h/.config", "/h/ssh/id_rsa", "/h/.netrc.d/x", "/"])
def test_other_paths_are_none(path: str) -> None:
    assert not is_credential(path)


def test_a_secret_is_told_by_its_name_or_by_a_password_in_its_value() -> None:
    secret = {
        "OPENAI_API_KEY": "x",
        "GITHUB_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PGPASSWORD": "x",
        "npm_config_//r/:_authToken": "x",
        "DATABASE_URL": "postgres://me:word@db/x",
        "GOOGLE_APPLICATION_CREDENTIALS": "/x.json",
        "GITLAB_PAT": "x",
    }
    plain = {
        "PATH": "/bin",
        "TOKENIZERS_PARALLELISM": "false",
        "KEYBOARD": "de",
        "PATTERN": "x",
        "HTTPS_PROXY": "http://proxy:3128",
        "GIT_URL": "ssh://git@host/x",
        "HOME": "/home/key",
    }
    assert find_secrets({**secret, **plain}) == sorted(secret)
