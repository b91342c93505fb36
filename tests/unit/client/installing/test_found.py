"""What another machine says before something is installed there, and after: read, never obeyed, never raw."""

import pytest

from holdfast.client.installing import found
from holdfast.client.installing.found import FarState
from holdfast.client.links.ssh import SshTarget
from holdfast.errors import OperationFailed, RemoteProtocolError
from tests.support.rows import every_row

BOX = SshTarget("box", "ann")
PYTHON = ((3, 12, 3), "/usr/bin/python3")
OURS = "/home/a b/.local/share/holdfast/versions/0.1.0-abc/bin/holdfast"


@every_row(
    ("said", "wanted"),
    [
        ("holdfast-found system Linux x86_64\n", FarState("Linux x86_64")),
        (
            "Welcome!\nholdfast-found system Linux aarch64\nholdfast-found holdfast holdfast 0.1.0\n"
            f"holdfast-found link {OURS}\nholdfast-found python 3.9.2 /usr/bin/python3\n"
            "holdfast-found python 3.12.3 /opt/a b/python3.12\n",
            FarState(
                "Linux aarch64", "0.1.0", "0.1.0-abc",
                pythons=(((3, 9, 2), "/usr/bin/python3"), ((3, 12, 3), "/opt/a b/python3.12")),
            ),
        ),
        ("holdfast-found system x\nholdfast-found link foreign\n", FarState("x", foreign=True)),
        ("holdfast-found system x\nholdfast-found link ../pipx/holdfast\n", FarState("x", foreign=True)),
        # what is not of its form is nothing
        ("holdfast-found system x\nholdfast-found holdfast $(touch x)\n", FarState("x")),
        ("holdfast-found system x\nholdfast-found python 3.99999.1 /x\n", FarState("x")),
        ("holdfast-found system \x1b]0;evil\x07a\x1b[2Jb\u202e\n", FarState("ab\\u202e")),
    ],
)  # fmt: skip
def test_what_a_machine_says_of_itself_is_read(said: str, wanted: FarState) -> None:
    assert found.read_state(said) == wanted


def test_a_machine_that_says_nothing_of_ours_is_told() -> None:
    with pytest.raises(RemoteProtocolError):
        found.read_state("csh: printf: not found\n")


def test_the_first_python_that_is_new_enough_is_taken() -> None:
    state = FarState(pythons=(((3, 10, 1), "/a"), ((3, 11, 0), "/b"), ((3, 13, 0), "/c")))
    assert state.python == ((3, 11, 0), "/b")


@every_row(
    ("state", "words"),
    [
        (FarState(foreign=True, pythons=(PYTHON,)), "not installed from here"),
        (FarState(), "has no Python 3.11 or newer$"),
        (FarState(pythons=(((3, 9, 2), "/x"),)), "only 3.9.2"),
    ],
)
def test_where_it_cannot_be_installed_is_said_first(state: FarState, words: str) -> None:
    with pytest.raises(OperationFailed, match=words):
        found.check(BOX, state)


def test_what_will_be_put_where_is_told() -> None:
    found.check(BOX, state := FarState("Linux x86_64", "0.0.9", "0.0.9-old", pythons=(PYTHON,)))
    told = "\n".join(found.describe(BOX, state, "0.1.0-new", "0.1.0", 5 << 20))
    for words in (
        *("ssh://ann@box has Holdfast 0.0.9", "~/.local/share/holdfast/versions/0.1.0-new", "3.12.3"),
        *("~/.local/bin/holdfast", "0.0.9-old", "5.0 MiB", "/usr/bin/python3", "package index"),
    ):
        assert words in told


def test_no_word_of_the_other_machine_is_in_what_is_run_there() -> None:
    script = found.write_install("holdfast-install-0a", "0.1.0-abc", "0.1.0")
    assert 'exec "$program" -I holdfast-install-0a/install.py 0.1.0-abc 0.1.0 </dev/null' in script
    assert "rm -rf holdfast-install-0a" in script


@every_row(
    ("said", "words"),
    [
        ('holdfast-installed {"refused": "index", "said": "No matching\\u001b[2J dist"}', "package index"),
        ('holdfast-installed {"refused": "venv"}', "no virtual environment"),
        ('holdfast-installed {"refused": "made up", "said": "\\u001b]0;x\\u0007y"}', "did not install it: y"),
    ],
)
def test_why_it_was_not_installed_is_said_without_what_a_terminal_obeys(said: str, words: str) -> None:
    with pytest.raises(OperationFailed, match=words) as failed:
        found.read_answer(BOX, f"noise\n{said}\n")
    assert str(failed.value).isprintable()


@every_row("said", ["", "holdfast-installed {", "holdfast-installed []", 'holdfast-installed {"kept": "x"}'])
def test_an_answer_that_makes_no_sense_is_no_success(said: str) -> None:
    with pytest.raises(RemoteProtocolError):
        found.read_answer(BOX, said)


def test_every_reason_of_the_program_over_there_has_words() -> None:
    import re
    from pathlib import Path

    from holdfast.client.installing import farside

    source = Path(farside.__file__).read_text("utf-8")
    kinds = set(re.findall(r'(?:Refused|_run)\("(\w+)"', source)) | {"files", "copy", "python"}
    assert kinds == set(found._REASONS)
