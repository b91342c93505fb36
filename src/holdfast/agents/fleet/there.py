"""Operations on the other machine for a worker: look, make a directory, unpack, gather results, clean up.

    $XDG_DATA_HOME/holdfast/carried/ID/
      carried.bundle  what was sent
      base.git        the same as git objects, which the worker cannot write
      work            the worker's directory
      state           the CLI's state

A shell and git on that machine do the work. Whenever git reads what the worker left, that machine's sandbox
confines it, and it uses no settings but ours.
"""

import asyncio
import posixpath
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agents.changes.git import FIXED, GIT_S
from holdfast.agents.fleet.sending import CARRIED, Carried
from holdfast.client.copying.transfers import upload
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import InvalidRequest, NotFound, OperationFailed, RemoteProtocolError
from holdfast.local.shown import show_bytes
from holdfast.sandbox.policy.policy import PROTECTED_NAMES

LOOK_S: Final = 20.0  # for a shell on a busy machine
MAX_RETURNED: Final = 64 << 20  # bytes of what a worker changed, packed
MAX_SAID: Final = 300
MAX_IGNORED: Final = 4096  # bytes of names
_LOOK: Final = r"""program=$1; shift
printf '%s\000' "$HOME" "${XDG_DATA_HOME:-$HOME/.local/share}" "$PATH" "$(uname -n)" \
  "$(command -v -- "$program")" "$(command -v git)" "$(command -v holdfast)"
for name; do
  if [ -e "$HOME/$name" ] || [ -L "$HOME/$name" ]; then printf '%s\000' "$HOME/$name"; fi
done"""
# An existing directory may be all that is left of a lost worker, so it is never reused.
_MAKE: Final = r"""umask 077; mkdir -p "${1%/*}" || exit 1
place=$1; number=1
until mkdir "$place"; do
  number=$((number + 1)); if [ "$number" -gt "$2" ]; then exit 1; fi
  place=$1.$number
done
mkdir -p "$place/state/tmp" && cd "$place" && pwd -P"""
_UNPACK: Final = r"""set -eu; umask 077
git init -q --bare base.git
git --git-dir=base.git fetch -q ./carried.bundle "$1:$1"
git clone -q --shared --no-tags -b carried base.git work
if [ -z "$2" ]; then rm -rf work/.git
elif [ "$2" != "$(git --git-dir=base.git rev-parse "$1")" ]; then git -C work reset -q --mixed "$2"
fi
mkdir -p "$3"
rm carried.bundle"""
_GATHER: Final = r"""set -eu
export GIT_DIR="$PWD/base.git" GIT_WORK_TREE="$PWD/work" GIT_INDEX_FILE="$PWD/base.git/returned"
git read-tree "$1"
git -C work add -A --ignore-errors . 2>/dev/null || true
tree=$(git write-tree)
printf '%s\n^%s\n' "$tree" "$1" | git pack-objects -q --revs --stdout > base.git/returned.pack
printf '%s\n' "$tree"
git -C work ls-files -o -i --exclude-standard --directory | head -c "$2" || true"""
_CLONING: Final = {
    name: FIXED[name]
    for name in (
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_GLOBAL",
        "GIT_ATTR_NOSYSTEM",
        "GIT_TERMINAL_PROMPT",
        "LC_ALL",
    )
}


@dataclass(frozen=True, slots=True)
class FarMachine:
    """What the machine has. `program`, `git` and `holdfast` may be ""; `there` lists existing paths."""

    home: str
    data: str
    path: str
    name: str
    program: str
    git: str
    holdfast: str
    there: tuple[str, ...]

    def place(self, worker: str) -> str:
        return posixpath.join(self.data, "holdfast", "carried", worker)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The tree that a worker left, its new objects as a pack, and the ignored names that are not in it."""

    tree: str
    pack: bytes
    ignored: tuple[str, ...] = ()


async def look(environment: Environment, program: str, names: Sequence[str]) -> FarMachine:
    """Find out what the other machine has: its home, the program, and which of these names below its home.

    Raises:
        OperationFailed: it has no POSIX shell.
        RemoteProtocolError: the answer is malformed.
    """
    said = await _shell(environment, _LOOK, program, *names, cwd="/")
    parts = said.decode("utf-8", "surrogateescape").split("\0")[:-1]
    if len(parts) < 7 or not parts[0].startswith("/") or not parts[1].startswith("/"):
        raise RemoteProtocolError("the other machine does not say where its home is")
    found, git, own = (path if path.startswith("/") else "" for path in parts[4:7])  # "" for an alias
    return FarMachine(
        parts[0], parts[1], parts[2], show_bytes(parts[3].encode()), found, git, own, tuple(parts[7:])
    )


async def make(environment: Environment, place: str, *, tries: int = 1) -> str:
    """Make the empty directory of a worker on the other machine; return its real path.

    An existing directory of that name stays, and the next name gets a number, up to `tries` names.

    Raises:
        HoldfastError: it cannot be made.
    """
    real = (
        (await _shell(environment, _MAKE, place, str(tries), cwd="/"))
        .decode("utf-8", "surrogateescape")
        .rstrip("\n")
    )
    if not real.startswith("/"):
        raise RemoteProtocolError("the other machine does not say where its files are")
    return real


async def unpack(
    environment: Environment, carried: Carried, bundle: Path, real: str, *, confined: bool
) -> None:
    """Upload the packed workspace to a directory on the other machine and unpack it.

    Raises:
        HoldfastError: the transfer fails, or git on the other machine fails.
    """
    await upload(environment, str(bundle), f"{real}/carried.bundle")
    policy = Policy.read_only().allow_write(real)
    for name in PROTECTED_NAMES:  # a new work tree may contain them
        policy = policy.allow_write(f"{real}/work/{name}").allow_write(f"{real}/{name}")
    below = f"work/{carried.below}" if carried.below else "work"
    await _shell(
        environment,
        _UNPACK,
        CARRIED,
        carried.base,
        below,
        cwd=real,
        policy=policy if confined else None,
        variables=_CLONING,
        limit_s=GIT_S,
    )


async def gather(environment: Environment, carried: Carried, place: str) -> Gathered:
    """Pack what the worker left against what was sent, in the other machine's sandbox, and fetch it.

    Raises:
        HoldfastError: it is too much, or cannot be fetched.
    """
    policy = Policy.read_only().allow_write(f"{place}/base.git")
    said = await _shell(
        environment,
        _GATHER,
        carried.sent,
        str(MAX_IGNORED),
        cwd=place,
        policy=policy,
        variables=FIXED,
        limit_s=GIT_S,
    )
    tree, _, rest = said.partition(b"\n")
    if len(tree) != len(carried.sent) or tree.strip(b"0123456789abcdef"):
        raise RemoteProtocolError("the other machine names no tree")
    pack = bytearray()
    async with aclosing(environment.files.open_blocks(f"{place}/base.git/returned.pack")) as blocks:
        async for block in blocks:
            pack += block
            if len(pack) > MAX_RETURNED:
                raise InvalidRequest(
                    f"it changed more than {MAX_RETURNED >> 20} MiB, packed, which is not brought back",
                    remedy=f"its files are still there, in {place}/work: `holdfast cp -r`",
                )
    ignored = tuple(show_bytes(name) for name in rest[:MAX_IGNORED].split(b"\n") if name)  # bounded here, too
    return Gathered(tree.decode("ascii"), bytes(pack), ignored)


async def clear(environment: Environment, place: str) -> None:
    """Remove the worker's directory.

    Raises:
        HoldfastError: something cannot be removed.
    """
    await _shell(environment, 'chmod -R u+rwX "$1" && rm -rf -- "$1"', place, cwd="/", limit_s=GIT_S)


async def _shell(
    environment: Environment,
    script: str,
    *words: str,
    cwd: str,
    policy: Policy | None = None,
    variables: dict[str, str] | None = None,
    limit_s: float = LOOK_S,
) -> bytes:
    process = await environment.start(
        ["/bin/sh", "-c", script, "sh", *words], cwd=cwd, policy=policy, more_env=variables
    )
    try:
        async with asyncio.timeout(limit_s):
            done = await process.wait()
    except TimeoutError:
        process.abandon()
        raise OperationFailed(f"the other machine takes more than {limit_s:g} s") from None
    if done.code:
        said = show_bytes(done.stderr).strip()[-MAX_SAID:]
        if done.code == 127:
            raise NotFound(f"something is missing on the other machine: {said}")
        raise OperationFailed(f"on the other machine: {said or f'exit code {done.code}'}")
    return done.stdout
