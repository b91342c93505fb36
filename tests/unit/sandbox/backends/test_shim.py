from holdfast.sandbox.backends.shim import BASH, candidates, command_line


def after_script(*argv: str, program: str | None = None, variables: tuple[str, ...] = ()) -> list[str]:
    line = command_line(
        argv[0] if program is None else program, argv, path="/a:/b", variables=variables, terminal=None
    )
    return line[line.index("holdfast") + 1 :]


def test_a_program_without_a_slash_is_looked_for_as_a_shell_does() -> None:
    assert candidates("ls", "/usr/bin::rel") == ["/usr/bin/ls", "./ls", "rel/ls"]
    assert candidates("/bin/ls", "/usr/bin") == ["/bin/ls"]
    assert candidates("", "/usr/bin") == []


def test_the_command_follows_an_empty_word_and_keeps_its_own_name() -> None:
    assert after_script("ls", "-l", "") == ["PWD OLDPWD SHLVL", "", "", "/a/ls", "/b/ls", "", "ls", "-l", ""]


def test_variables_that_a_shell_adds_are_taken_away_unless_they_were_asked_for() -> None:
    assert after_script("ls", variables=("SHLVL", "PWD"))[0] == "OLDPWD"


def test_another_name_is_given_by_bash() -> None:
    words = after_script("other", "-x", program="ls")
    assert words[:6] == ["PWD OLDPWD SHLVL", "", BASH, "/a/ls", "/b/ls", ""]
    assert words[6] == BASH
    assert words[-3:] == ["other", "ls", "-x"]


def test_the_terminal_is_an_argument() -> None:
    line = command_line("ls", ["ls"], path="/a", variables=(), terminal="/dev/console")
    assert line[line.index("holdfast") + 2] == "/dev/console"
