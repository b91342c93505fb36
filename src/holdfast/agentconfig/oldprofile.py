"""An old-style profile of a configuration file as the text of a file of its own. Pure module.

Codex does not start with `profile = "x"` any more; what `[profiles.x]` said belongs into
`x.config.toml` beside the file, with the same keys at its root.
"""

from holdfast.agentconfig import render
from holdfast.agentconfig.document import Document, LineKind, Shape


def extract(document: Document, name: str) -> str | None:
    """The settings of this profile, values as they were written; None if there is no such profile."""
    prefix = ("profiles", name)
    root: list[str] = []
    tables: list[str] = []
    below_header = False
    for item in document.items:
        path = item.path[len(prefix) :] if item.path[: len(prefix)] == prefix else None
        if item.kind in (LineKind.TABLE, LineKind.TABLES):
            below_header = bool(path)
            if path:
                opening, closing = ("[", "]") if item.kind is LineKind.TABLE else ("[[", "]]")
                tables += ["", f"{opening}{render.key(path)}{closing}"]
        elif path is not None and item.value is not None:
            if path:
                lines = tables if below_header else root
                key = item.key if below_header else path
                lines.append(f"{render.key(key)} = {document.source(item.value)}")
            elif item.value.shape is Shape.TABLE:
                root += [f"{render.key(key)} = {document.source(node)}" for key, node in item.value.entries]
    return "\n".join([*root, *tables, ""]).lstrip("\n") if root or tables else None
