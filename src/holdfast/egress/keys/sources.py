"""Sources of keys: a variable, a file, or the output of a program, which runs outside.

A program is given by its path, or found on the search path. It is never below a directory that a command can
write: a program there would run with our rights. Error messages contain no part of a key.
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
# Commands of programs that keep keys; the arguments of the wish follow.
_KEEPERS: Final = {PASS: ("pass", "show", "--"), SECRET_TOOL: ("secret-tool", "lookup")}


def read_key(wish: SecretWish, environ: Mapping[str, str], outside: Iterable[str] = ()) -> str:
    """Read the key, without any check of it; programs below the directories `outside` are not run.

    Raises:
        UsageError: it cannot be read.
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
    """The file from which this key is read."""
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
    """The first line that a program prints, as `pass` does. It runs without a shell."""
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
    """The real path of a program that is below none of these directories."""
    closed = [os.path.realpath(folder) for folder in outside]
    folders = ["/"] if os.path.isabs(name) else [] if "/" in name else search.split(":")
    for folder in filter(os.path.isabs, folders):
        found = os.path.realpath(os.path.join(folder, name))
        below = any(f"{found}/".startswith(f"{one.rstrip('/')}/") for one in closed)
        if os.path.isfile(found) and os.access(found, os.X_OK) and not below:
            return found
    return None


def _text(data: bytes) -> str:
    return data.decode("latin-1")  # make_placeholder refuses non-ASCII text, with a reason
