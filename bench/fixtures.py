"""The files the measures read, made once per run in a directory of their own."""

import os
from pathlib import Path
from typing import Final, NamedTuple

WALK_DIRECTORIES: Final = 100
FILES_EACH: Final = 99
WALK_ENTRIES: Final = WALK_DIRECTORIES * (1 + FILES_EACH)
LARGE_BYTES: Final = 8 << 20
SMALL_BYTES: Final = 1 << 10


class Fixtures(NamedTuple):
    root: Path
    tree: Path
    large: Path
    small: Path


def make(root: Path) -> Fixtures:
    tree, large, small = root / "tree", root / "large.bin", root / "small.bin"
    for number in range(WALK_DIRECTORIES):
        directory = tree / f"directory-{number:03}"
        directory.mkdir(parents=True)
        for file_number in range(FILES_EACH):
            (directory / f"file-{file_number:02}.txt").touch()
    large.write_bytes(os.urandom(LARGE_BYTES))
    small.write_bytes(os.urandom(SMALL_BYTES))
    return Fixtures(root, tree, large, small)
