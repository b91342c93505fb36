"""The managed block: owned keys written into a file that somebody else owns too. Pure module.

Root keys stand in blocks at the very top, where no table can swallow them, nested ones dotted. A table
that the user opened with a header cannot be extended from the root (that is a duplicate key), so its
keys stand in a block of their own right below that header. What the user had set under an owned key
becomes a comment, and `remove` gives it back.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.agentconfig import oldprofile, render
from holdfast.agentconfig.conflict import Conflict, Intent
from holdfast.agentconfig.document import Document, Item, LineKind, scan
from holdfast.agentconfig.removal import Edit, splice, strip
from holdfast.agentconfig.resolution import OLD_PROFILE, Resolution, resolve
from holdfast.agentconfig.settings import BLOCKS, Key, Settings, block_of
from holdfast.agentconfig.shapes import migrate

_BLOCK_OF_TABLE: Final = {
    "sandbox_workspace_write": "sandbox",
    "permissions": "sandbox",
    "projects": "trust",
    "features": "features",
    "shell_environment_policy": "environment",
}


@dataclass(frozen=True, slots=True)
class Applied:
    """The new text and how it came about.

    `settings` are the values that are now in force: the given ones, or the user's where those are
    stricter, with the user's writable roots before ours. `offers` are old-style profiles that the file
    named, as the texts of the files (name, text) that Codex reads today.
    """

    text: str
    conflicts: tuple[Conflict, ...]
    intents: tuple[Intent, ...]
    changed: bool
    settings: Settings
    offers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """The user's text as it was before us."""

    text: str
    conflicts: tuple[Conflict, ...]
    changed: bool


def apply(text: str, settings: Settings, *, config_dir: str, keep_stricter: bool = True) -> Applied:
    """This text with these settings in force; applying again changes nothing.

    `config_dir` is the directory of the file, for relative writable roots. With `keep_stricter` a mode
    of the user that allows less than ours stays; an operator's policy may say otherwise.

    Raises:
        Unparsable: the text is not TOML.
        ReservedName: the user has a permission profile of our name, and the settings need it.
    """
    stripped = strip(text)
    migrated = migrate(stripped.text)
    document = scan(migrated.text)
    resolution = resolve(
        document,
        settings,
        config_dir=config_dir,
        keep_stricter=keep_stricter,
        foreign=migrated.foreign,
    )
    written = splice(document.text, [*_blocks(document, resolution), *_taken_out(document, resolution)])
    return Applied(
        text=written,
        conflicts=(*stripped.conflicts, *migrated.conflicts, *resolution.conflicts),
        intents=resolution.intents,
        changed=written != text,
        settings=resolution.settings,
        offers=_offers(document, resolution),
    )


def remove(text: str) -> Removed:
    """This text without our blocks, and with what they had displaced.

    Raises:
        Unparsable: the text is not TOML.
    """
    stripped = strip(text)
    return Removed(stripped.text, stripped.conflicts, stripped.text != text)


def _taken_out(document: Document, resolution: Resolution) -> list[Edit]:
    edits = []
    for item, reason in resolution.out:
        source = document.source(item)
        edits.append((item.start, item.end, render.record(source, reason, _newline(document, item))))
    return edits


def _blocks(document: Document, resolution: Resolution) -> list[Edit]:
    """Insertions: at the top, and below the headers whose tables we must not open again."""
    headers: dict[Key, Item] = {}
    for item in document.items:
        if item.kind is LineKind.TABLE:
            headers.setdefault(item.path, item)
    places: dict[Key, dict[str, list[str]]] = {}
    lines = [(item.key, block_of(item.key), render.value(item.value)) for item in resolution.settings.items]
    lines += [(key, _BLOCK_OF_TABLE[key[0]], source) for key, source in resolution.carried]
    for key, name, value in lines:
        place = next((key[:length] for length in range(len(key) - 1, 0, -1) if key[:length] in headers), ())
        body = places.setdefault(place, {}).setdefault(name, [])
        body.append(f"{render.key(key[len(place) :])} = {value}")
    return [_insertion(document, headers.get(place), bodies) for place, bodies in places.items()]


def _insertion(document: Document, header: Item | None, bodies: dict[str, list[str]]) -> Edit:
    newline = _newline(document, header) if header else document.newline
    text = "".join(render.block(name, bodies[name], newline) for name in BLOCKS if name in bodies)
    if header is None:
        follows = len(document.text) > document.top
        return document.top, document.top, text + (newline if follows else "")
    if not document.source(header).endswith("\n"):
        text = newline + text.removesuffix(newline)
    return header.end, header.end, text


def _newline(document: Document, item: Item) -> str:
    source = document.source(item)
    if source.endswith("\n"):
        return "\r\n" if source.endswith("\r\n") else "\n"
    return document.newline


def _offers(document: Document, resolution: Resolution) -> tuple[tuple[str, str], ...]:
    names = [intent.value for intent in resolution.intents if intent.key == OLD_PROFILE]
    texts = {name: oldprofile.extract(document, name) for name in names if isinstance(name, str)}
    return tuple((f"{name}.config.toml", text) for name, text in texts.items() if text)
