"""Inspect the other machine, describe an installation there, and explain its failure. Pure module.

All text from that machine is untrusted: our lines are picked out by their first word, values must match their
form, and text that is shown is escaped and shortened. None of it enters a command line.
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.client.links.ssh import SEARCH, SshTarget
from holdfast.errors import OperationFailed, RemoteProtocolError
from holdfast.local.shown import cut_words, show_name

OLDEST: Final = (3, 11)
STAGE: Final = "holdfast-install-"  # prefix of a folder's name in the home there
PROGRAM: Final = "install.py"
MAX_SHOWN: Final = 300  # characters of the other machine's output
UNINSTALL: Final = "--uninstall"
_END: Final = "END-OF-HOLDFAST"
_WORD: Final = "holdfast-found"
_DONE: Final = "holdfast-installed"
# The first that is new enough is used; `python3` is the system's default.
_FIND_PYTHON: Final = r"""for name in python3 python3.14 python3.13 python3.12 python3.11; do
  program=$(command -v "$name") || continue
  version=$("$program" -I -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null) \
    || continue
"""
LOOK: Final = f"""{SEARCH}
say() {{ printf '{_WORD} %s %s\\n' "$1" "$2"; }}
say system "$(uname -s) $(uname -m)"
say holdfast "$(holdfast --version </dev/null 2>/dev/null)"
if [ -L "$HOME/.local/bin/holdfast" ]; then say link "$(readlink "$HOME/.local/bin/holdfast")"
elif [ -e "$HOME/.local/bin/holdfast" ]; then say link foreign
fi
{_FIND_PYTHON}  say python "$version $program"
done
exit 0
"""
_OURS: Final = re.compile(r"/.*/\.local/share/holdfast/versions/([\w.+-]{1,80})/bin/holdfast")


@dataclass(frozen=True, slots=True)
class FarState:
    """`holdfast` is the version that is found there, or ""; `name` is that of our installation.

    `foreign`: another program is where our link would be. `pythons` are versions with their paths.
    """

    system: str = ""
    holdfast: str = ""
    name: str = ""
    foreign: bool = False
    pythons: tuple[tuple[tuple[int, ...], str], ...] = ()

    @property
    def python(self) -> tuple[tuple[int, ...], str] | None:
        return next((one for one in self.pythons if one[0][:2] >= OLDEST), None)


def read_state(said: str) -> FarState:
    """Parse what `LOOK` printed, and ignore other output of the shell there.

    Raises:
        RemoteProtocolError: it printed nothing of ours.
    """
    told = re.findall(rf"^{_WORD} (\w+) (.*)$", said, re.MULTILINE)
    last = dict(told)
    if "system" not in last:
        raise RemoteProtocolError("the other machine does not answer as a POSIX shell does")
    version = re.fullmatch(r"holdfast (\d[\w.+-]{0,40})", last.get("holdfast", ""))
    ours = _OURS.fullmatch(last.get("link", ""))
    pythons = [
        re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3}) (/.+)", value)
        for key, value in told
        if key == "python"
    ]
    return FarState(
        system=_show(last["system"]),
        holdfast="" if version is None else version[1],
        name="" if ours is None else ours[1],
        foreign="link" in last and ours is None,
        pythons=tuple(
            ((int(one[1]), int(one[2]), int(one[3])), _show(one[4])) for one in pythons if one is not None
        ),
    )


def check(target: SshTarget, state: FarState) -> None:
    """Raises: OperationFailed: it cannot be installed there."""
    if state.foreign:
        raise OperationFailed(
            f"{target} has a ~/.local/bin/holdfast that was not installed from here, and it is not replaced",
            remedy="update it there, as it was installed, or remove it: pip, pipx and uv put programs there",
        )
    if state.python is None:
        oldest = ".".join(map(str, OLDEST))
        found = ", ".join(dict.fromkeys(".".join(map(str, version)) for version, _ in state.pythons))
        raise OperationFailed(
            f"{target} has no Python {oldest} or newer{f', only {found}' if found else ''}",
            remedy=f"install one there: its package manager, or uv python install {oldest}",
        )


def describe(target: SshTarget, state: FarState, name: str, version: str, size: int) -> list[str]:
    """Describe what will be installed and where, before it is done."""
    if state.python is None:
        raise AssertionError("it was checked")
    found, program = state.python
    there = f"has Holdfast {state.holdfast}" if state.holdfast else "has no Holdfast"
    return [
        f"{target} {there} ({state.system}). For your user there, this installs {version}:",
        f"  ~/.local/share/holdfast/versions/{name}  a virtual environment of Python "
        f"{'.'.join(map(str, found))} ({program})",
        "  ~/.local/bin/holdfast  a link to its program"
        + (f", which is now one to {state.name}" if state.name else ""),
        f"  {size / (1 << 20):.1f} MiB are copied with scp; what does not fit its Python comes from the "
        "package index that pip there uses",
    ]


def write_install(folder: str, name: str, version: str) -> str:
    """The script that installs the files that were copied into this folder of the home."""
    return f"""cd || exit 1
if [ ! -f {folder}/{PROGRAM} ]; then printf '{_DONE} {{"refused": "copy"}}\\n'; exit 1; fi
{_FIND_PYTHON}  if "$program" -I -c 'import sys; sys.exit(sys.version_info < {OLDEST})' </dev/null; then
    exec "$program" -I {folder}/{PROGRAM} {name} {version} </dev/null
  fi
done
rm -rf {folder}
printf '{_DONE} {{"refused": "python"}}\\n'
"""


def write_uninstall(program: str) -> str:
    """The script that runs `farside` with a Python on the other machine."""
    return f"""cd || exit 1
{_FIND_PYTHON}  if "$program" -I -c 'import sys; sys.exit(sys.version_info < {OLDEST})' </dev/null; then
    exec "$program" -I - {UNINSTALL} <<'{_END}'
{program}
{_END}
  fi
done
printf '{_DONE} {{"refused": "python"}}\n'
"""


class _Answer(msgspec.Struct):
    refused: str = ""
    said: str = ""
    fetched: bool = False
    kept: int = 0


_REASONS: Final = {
    "foreign": ("has a ~/.local/bin/holdfast that was not installed from here", "remove it there"),
    "busy": ("is being installed to by another process just now", "try again in a minute"),
    "copy": ("does not find what was copied in its home", "is $HOME there the directory that scp starts in?"),
    "python": ("has no Python that is new enough any more", "holdfast environment check {target}"),
    "venv": ("makes no virtual environment", "install python3-venv there"),
    "pip": ("has no pip, and there is none here to send", "install python3-venv there, or pip here"),
    "index": (
        "cannot have all that Holdfast needs: some of what is installed here does not fit its Python, and "
        "its package index does not give it",
        "let pip there know an index (pip config set global.index-url URL), or install from a machine that "
        "has the same Python",
    ),
    "used": ("runs something from what would be removed", "end it: --stop, or holdfast down there"),
    "start": ("does not start what was installed", None),
    "files": ("cannot write its files", "is its disk full?"),
}


def read_answer(target: SshTarget, said: str) -> _Answer:
    """Parse the outcome on the other machine.

    Raises:
        OperationFailed: nothing was installed; it says why.
        RemoteProtocolError: there is no valid answer.
    """
    lines = re.findall(rf"^{_DONE} (\{{.*\}})$", said, re.MULTILINE)
    try:
        answer = decoding.decode(lines[-1] if lines else "", _Answer)
    except msgspec.MsgspecError:
        raise RemoteProtocolError(f"{target} does not say whether it installed anything") from None
    if answer.refused:
        words, remedy = _REASONS.get(answer.refused, ("did not install it", None))
        told = f": {_show(answer.said)}" if answer.said.strip() else ""
        raise OperationFailed(f"{target} {words}{told}", remedy=remedy and remedy.format(target=target))
    return answer


def _show(text: str) -> str:
    return show_name(cut_words(text, MAX_SHOWN))
