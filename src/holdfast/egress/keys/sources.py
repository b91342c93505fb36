"""Where a key is taken from: a variable, a file, or what a program says, which runs outside.

A program is named by its path, or found on the search path; never below the directories that a command may
fill, whose file of that name would be run with our rights. Nothing of a key is in an error.
"""

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import COMMAND, FILE, PASS, SECRET_TOOL, SecretWish

PROGRAM_S: Final = 120.0  # a person may have to type a passphrase
MAX_BYTES: Final = 64 * 1024
# What is asked of programs that keep keys, before the words of the wish.
_KEEPERS: Final = {PASS: ("pass", "show", "--"), SECRET_TOOL: ("secret-tool", "lookup")}


def read_key(wish: SecretWish, environ: Mapping[str, str], outside: Iterable[str] = ()) -> str:
    """The key, of which nothing is checked yet; programs below the directories `outside` are not run.

    Raises:
        UsageError: it cannot be had.
    """
    kind = wish.source.partition(":")[0] + ":" if wish.source else ""
    if kind == FILE:
        return _read_file(wish)
    if kind:
        return _ask(wish, _words(wish, kind), environ.get("PATH", os.defpath), outside)
    if not environ.get(wish.name):
        raise UsageError(
            f"--secret {wish.name}: there is no such variable",
            remedy=f"set {wish.name}, or name a file or a program: {wish.name}=file:PATH@{wish.host}",
        )
    return environ[wish.name]


def find_file(wish: SecretWish) -> str | None:
    """The file that this key is taken from."""
    if not wish.source.startswith(FILE):
        return None
    return os.path.abspath(os.path.expanduser(wish.source.removeprefix(FILE)))


def _read_file(wish: SecretWish) -> str:
    try:
        with open(find_file(wish) or "", "rb") as file:
            return _text(file.read(MAX_BYTES).rstrip(b"\r\n"))
    except OSError as exc:
        raise UsageError(f"--secret {wish.name}: cannot read its file: {exc.strerror}") from None


def _words(wish: SecretWish, kind: str) -> Sequence[str]:
    text = wish.source.removeprefix(kind)
    if kind == PASS:
        return (*_KEEPERS[kind], text)  # the name of an entry may have spaces
    try:
        return (*_KEEPERS.get(kind, ()), *shlex.split(text))
    except ValueError:
        raise UsageError(f"--secret {wish.name}: its program has an open quotation") from None


def _ask(wish: SecretWish, words: Sequence[str], search: str, outside: Iterable[str]) -> str:
    """The first line that a program says, as `pass` does. It runs without a shell."""
    program = _find_program(words[0], search, outside)
    if program is None:
        raise UsageError(
            f"--secret {wish.name}: {words[0]} is not installed, or only where a command could have put it",
            remedy=f"install {words[0]}, or write {COMMAND}/PATH/OF/IT",
        )
    try:
        done = subprocess.run(  # noqa: S603 - the user's own program, by the user's own words
            words,
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PROGRAM_S,
            check=False,
        )
    except OSError as exc:
        raise UsageError(f"--secret {wish.name}: {words[0]} cannot be run: {exc.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"--secret {wish.name}: {words[0]} did not end") from None
    if done.returncode:
        raise UsageError(f"--secret {wish.name}: {words[0]} failed with {done.returncode}")
    return _text(done.stdout[:MAX_BYTES].partition(b"\n")[0].rstrip(b"\r"))


def _find_program(name: str, search: str, outside: Iterable[str]) -> str | None:
    """The real path of a program that lies below none of these directories."""
    closed = [os.path.realpath(folder) for folder in outside]
    folders = ["/"] if os.path.isabs(name) else [] if "/" in name else search.split(":")
    for folder in filter(os.path.isabs, folders):
        found = os.path.realpath(os.path.join(folder, name))
        below = any(f"{found}/".startswith(f"{one.rstrip('/')}/") for one in closed)
        if os.path.isfile(found) and os.access(found, os.X_OK) and not below:
            return found
    return None


def _text(data: bytes) -> str:
    return data.decode("latin-1")  # what is not ASCII is refused with its reason
