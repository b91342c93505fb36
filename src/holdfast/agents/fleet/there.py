"""What is done on the other machine for a worker, besides running it: a look, unpacking, gathering, clearing.

    $XDG_DATA_HOME/holdfast/carried/ID/
      carried.bundle  what was sent
      base.git        the same as objects, which the worker cannot write
      work            where it works
      state           where its CLI keeps its state

All of it is work for a shell and for git over there. Git is confined by that machine's own sandbox wherever
it looks at what the worker left, and knows no setting but ours.
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
# What is there already may be all that is left of a worker that was lost.
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
    """What there is: `program`, `git` and `holdfast` may be "", `there` is what exists of a list."""

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
    """The tree that a worker left, the objects of it that are new, and what is not in it."""

    tree: str
    pack: bytes
    ignored: tuple[str, ...] = ()


async def look(environment: Environment, program: str, names: Sequence[str]) -> FarMachine:
    """What the other machine has: its home, the program, and which of these names below its home.

    Raises:
        OperationFailed: it has no POSIX shell.
        RemoteProtocolError: the answer makes no sense.
    """
    said = await _shell(environment, _LOOK, program, *names, cwd="/")
    parts = said.decode("utf-8", "surrogateescape").split("\0")[:-1]
    if len(parts) < 7 or not parts[0].startswith("/") or not parts[1].startswith("/"):
        raise RemoteProtocolError("the other machine does not say where its home is")
    found, git, own = (path if path.startswith("/") else "" for path in parts[4:7])  # not an alias
    return FarMachine(
        parts[0], parts[1], parts[2], show_bytes(parts[3].encode()), found, git, own, tuple(parts[7:])
    )


async def make(environment: Environment, place: str, *, tries: int = 1) -> str:
    """The directory of a worker over there, with nothing in it yet; its real path.

    After `tries` it is given up: what is there under its name stays, and the next one has a number.

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
    """Carry what was packed to a directory over there.

    Raises:
        HoldfastError: it does not get there, or git over there fails.
    """
    await upload(environment, str(bundle), f"{real}/carried.bundle")
    policy = Policy.read_only().allow_write(real)
    for name in PROTECTED_NAMES:  # of a work tree that is new
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
    """What the worker left, packed against what was sent; looked at over there in that machine's sandbox.

    Raises:
        HoldfastError: it is too much, or cannot be had.
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
    ignored = tuple(show_bytes(name) for name in rest[:MAX_IGNORED].split(b"\n") if name)  # also if it lies
    return Gathered(tree.decode("ascii"), bytes(pack), ignored)


async def clear(environment: Environment, place: str) -> None:
    """Remove all of it.

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
