"""Conversations about files: reading, writing, listing, handles and watches."""

from collections.abc import Iterator
from typing import Any, Final

from tests.support.dialogue import READ_ALL, READY, Ask, Step, at, b64, fs, sandbox, walk


def files() -> Iterator[tuple[str, list[Step]]]:
    names = [
        "a.txt",
        "gone",
        "dir",
        "fifo",
        "link",
        "broken",
        "loop",
        "a.txt/x",
        "dirlink/b.txt",
        "a.txt/",
        "",
    ]
    for method in ("readFile", "getMetadata"):
        yield f"{method}-follow", [fs(method, name) for name in names]
        yield f"{method}-nofollow", [fs(method, name, followSymlinks=False) for name in names]
    yield "canonicalize", [fs("canonicalize", name) for name in names]
    yield "read-directory-refused", [fs("readDirectory", name) for name in names if name not in ("dir", "")]
    yield "read-directory-single", [fs("readDirectory", "dir/.hidden")]
    for follow in (True, False):
        yield (
            f"write-follow-{follow}",
            [
                *(
                    fs("writeFile", name, dataBase64="eA==", followSymlinks=follow)
                    for name in names
                    if name != "fifo"
                ),
                *(fs("readFile", name) for name in ("a.txt", "dir/b.txt")),
            ],
        )
    bad = ["!", "YQ", "YR==", "YQ==\n", "_-8=", None]
    yield "write-base64", [fs("writeFile", "new", dataBase64=text) for text in bad]
    yield "write-missing-parent", [fs("writeFile", "gone/new", dataBase64="")]
    variants: list[dict[str, Any]] = [
        {},
        {"recursive": False},
        {"recursive": None},
        {"followSymlinks": False},
    ]
    for index, options in enumerate(variants):
        targets = ["new", "dir", "a.txt", "deep/er/est", "dirlink/new", "broken", "a.txt/new"]
        yield f"create-{index}", [fs("createDirectory", name, **options) for name in targets]
    removals: list[dict[str, Any]] = [*variants[:3], {"force": False}, {"recursive": False, "force": False}]
    removals += [{"followSymlinks": False}, {"followSymlinks": False, "recursive": False}]
    for index, options in enumerate(removals):
        targets = ["gone", "a.txt", "dirlink", "link", "broken", "empty", "dir", "fifo"]
        left: list[Step] = [fs("getMetadata", name) for name in ("dir/b.txt", "a.txt")]
        yield f"remove-{index}", [*(fs("remove", name, **options) for name in targets), *left]
    yield (
        "foreign-paths",
        [
            Ask("fs/readFile", {"path": uri})
            for uri in (
                "file:///C:/x",
                "file://server/share",
                "$P/a.txt",
                "http://x/y",
                "file:///a%00b",
                7,
                None,
            )
        ],
    )
    yield "file-members", [Ask("fs/readFile", {}), fs("readFile", "a.txt", followSymlinks="no")]
    yield "file-members-null", [fs("readFile", "a.txt", followSymlinks=None, sandbox=None)]


def hidden() -> Iterator[tuple[str, list[Step]]]:
    def write(name: str, *entries: dict[str, Any]) -> Ask:
        return fs("writeFile", name, dataBase64="eA==", sandbox=sandbox(READ_ALL, *entries))

    root = at("", "write")
    pattern = {"path": {"type": "glob_pattern", "pattern": "$P/*.txt"}, "access": "deny"}
    yield (
        "write-hidden",
        [
            write("a.txt", at("a.txt", "deny")),
            write("a.txt", root, at("a.txt", "deny")),
            write("gone", root, at("gone", "deny")),
            write("dir", root, at("dir", "deny")),
            write("dir/b.txt", root, at("dir", "deny")),
            write("dir/new", root, at("dir", "deny")),
            write("a.txt", root, pattern),
            fs("readFile", "a.txt", sandbox=sandbox(READ_ALL, root, at("a.txt", "deny"))),
            fs("readFile", "a.txt"),
        ],
    )
    yield "write-hidden-by-link", [write("link", root, at("a.txt", "deny"))]
    yield (
        "legacy-landlock-files",
        [
            fs("readFile", "a.txt", sandbox=sandbox(READ_ALL, useLegacyLandlock=True)),
            fs("writeFile", "a.txt", dataBase64="", sandbox=sandbox(READ_ALL, useLegacyLandlock=True)),
        ],
    )


def copies() -> Iterator[tuple[str, list[Step]]]:
    def copy(source: str, target: str, **more: Any) -> Ask:
        return Ask("fs/copy", {"sourcePath": f"$W/{source}", "destinationPath": f"$W/{target}"} | more)

    for tree in (True, False):
        yield (
            f"copy-recursive-{tree}",
            [
                copy("a.txt", "copy", recursive=tree),
                copy("a.txt", "dir/b.txt", recursive=tree),
                copy("a.txt", "gone/copy", recursive=tree),
                copy("a.txt", "dir", recursive=tree),
                copy("gone", "copy", recursive=tree),
                copy("link", "copied-link", recursive=tree),
                copy("link", "copied-link", recursive=tree),
                copy("broken", "copied-broken", recursive=tree),
                copy("dirlink", "copied-dirlink", recursive=tree),
                copy("fifo", "copied-fifo", recursive=tree),
                copy("dir", "tree", recursive=tree),
                copy("dir", "empty", recursive=tree),
                copy("dir", "dir", recursive=tree),
                copy("dir", "dir/below", recursive=tree),
                copy("dir", "dirlink/below", recursive=tree),
                copy("dir", "a.txt", recursive=tree),
                walk("", maxDepth=64),
            ],
        )
    yield "copy-members", [copy("a.txt", "copy"), copy("a.txt", "copy", recursive=None)]


def walks() -> Iterator[tuple[str, list[Step]]]:
    yield "walk", [walk(name) for name in ("", "dir", "dir/", "dirlink", "a.txt", "gone", "empty", "broken")]
    yield "walk-links", [walk(name, followDirectorySymlinks=True) for name in ("", "dirlink", "link")]
    yield (
        "walk-hidden",
        [walk("", pruneHiddenDirectories=True), walk("dir/.hidden", pruneHiddenDirectories=True)],
    )
    bounds: list[dict[str, Any]] = [{"maxDepth": 0}, {"maxDepth": 1}, {"maxDirectories": 1}]
    bounds += [{"maxDirectories": 2}, {"maxEntries": 1}, {"maxEntries": 4}]
    yield "walk-bounds", [walk("", **bound) for bound in bounds]
    wrong: list[dict[str, Any]] = [{"maxDepth": 65}, {"maxDirectories": 0}, {"maxEntries": 50_001}]
    wrong += [
        {"maxEntries": 0},
        {"maxDirectories": 10_001},
        {"maxDepth": -1},
        {"followDirectorySymlinks": None},
    ]
    yield "walk-wrong-bounds", [walk("", **bound) for bound in wrong]


def handles() -> Iterator[tuple[str, list[Step]]]:
    def opened(handle: str, name: str = "a.txt", **more: Any) -> Ask:
        return fs("open", name, handleId=handle, **more)

    def read(handle: str, offset: object, length: object) -> Ask:
        return Ask("fs/readBlock", {"handleId": handle, "offset": offset, "len": length})

    def write(handle: str, offset: object, chunk: bytes) -> Ask:
        return Ask("fs/writeBlock", {"handleId": handle, "offset": offset, "chunk": b64(chunk)})

    close = Ask("fs/close", {"handleId": "h"})
    spans = [(0, 3), (3, 3), (6, 1), (2, 99), (99, 1), (0, 0), (0, 1 << 20), (0, (1 << 20) + 1), (-1, 1)]
    yield "read-blocks", [opened("h"), *(read("h", *span) for span in spans), close, read("h", 0, 1), close]
    yield "read-absurd-offset", [opened("h"), read("h", (1 << 64) - 1, 1), read("h", 0, 1)]
    yield (
        "open-refused",
        [
            *(opened(f"h-{name}", name) for name in ("gone", "dir", "fifo", "broken", "link")),
            opened("h", mode=None),
            opened("h", mode="append"),
            opened("x" * 33),
            opened("ü" * 17),
            opened("x" * 32),
            opened(""),
            opened(""),
            Ask("fs/close", {"handleId": "x" * 33}),
        ],
    )
    yield "open-too-many", [opened(str(number)) for number in range(130)]
    gap = [
        write("h", 5, b"x"),
        write("h", 0, b""),
        write("h", 0, bytes((1 << 20) + 1)),
        write("h", (1 << 63), b"x"),
    ]
    yield (
        "write-blocks",
        [opened("h", "new", mode="replace"), *gap, read("h", 0, 1), close, fs("readFile", "new")],
    )
    yield (
        "replace-refused",
        [opened(f"h-{n}", n, mode="replace") for n in ("gone/x", "dir", "fifo", "a.txt/x")],
    )
    yield "write-to-read-handle", [opened("h"), write("h", 0, b"x"), read("h", 0, 1)]


def watches() -> Iterator[tuple[str, list[Step]]]:
    def watch(number: object, *missing: str, **more: Any) -> Ask:
        return Ask("fs/watchMissing", {"watchId": number, "missing": [f"$W/{n}" for n in missing]} | more)

    yield (
        "watch-answers",
        [
            watch(0, "gone"),
            watch(2, "gone"),
            watch(2, "gone"),
            watch(3),
            watch(4, "a.txt"),
            watch(5, "a.txt/x"),
            watch(6, "broken"),
            watch(7, *(f"gone-{n}" for n in range(65))),
            watch(8, "gone", present="$W/a.txt"),
            watch(9, "gone", present="$W/gone"),
            watch(10, "gone/deep"),
            watch(-1, "gone"),
            watch("1", "gone"),
        ],
    )


CASES: Final[dict[str, list[Step]]] = {
    name: [*READY, *steps]
    for group in (files, hidden, copies, walks, handles, watches)
    for name, steps in group()
}
