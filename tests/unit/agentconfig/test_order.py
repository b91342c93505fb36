"""A change to show."""

from holdfast.agentconfig.order import diff


def test_nothing_is_shown_when_nothing_changes() -> None:
    assert diff("f", "a = 1\n", "a = 1\n") == []


def test_only_lines_that_change_are_shown() -> None:
    assert diff("f", "a = 1\nb = 2\n", "a = 1\nb = 3\n") == [
        "--- f",
        "+++ f",
        "@@ -2 +2 @@",
        "-b = 2",
        "+b = 3",
    ]


def test_of_a_secret_only_the_key_is_shown() -> None:
    before = 'shell_environment_policy = { set = { A = "s3cret" } }\nAPI_TOKEN = "s3cret"\n'
    after = (
        'shell_environment_policy.set.A = "s3cret"\n'
        '#: shell_environment_policy = { set = { A = "s3cret" } }\n'
        "x = 1 # token s3cret\n"
        "    token s3cret,\n"
    )
    shown = "\n".join(diff("f", before, after))
    assert "s3cret" not in shown
    assert "API_TOKEN" in shown
    assert "set.A" in shown


def test_what_is_ours_is_shown() -> None:
    ours = [
        "# >>> holdfast environment v1 07708aa50500 >>> written by holdfast",
        "shell_environment_policy.ignore_default_excludes = false",
        "# holdfast v1 took out 1 line: the block decides shell_environment_policy",
    ]
    assert diff("f", "", "\n".join(ours))[3:] == [f"+{line}" for line in ours]
