"""Environments written into the file and taken out of it; everything else in it keeps its bytes."""

from holdfast.errors import NotFound


def add(text: str, name: str, url: str, *, default: bool) -> str:
    """This file with one more environment, which the caller checks by reading it."""
    import tomlkit  # slow to import, and only who edits needs it

    document = tomlkit.parse(text)
    entries = document.get("environments")
    if entries is None:
        entries = document["environments"] = tomlkit.aot()
    entry = tomlkit.table()
    entry["id"], entry["url"] = name, url
    entries.append(entry)
    if default:
        document["default"] = name
    return tomlkit.dumps(document)


def remove(text: str, name: str) -> str:
    """This file without that environment, and without a default that was it.

    Raises:
        NotFound: it has none of this name.
    """
    import tomlkit

    document = tomlkit.parse(text)
    entries = document.get("environments", [])
    for number, entry in enumerate(entries):
        if entry.get("id") == name:
            del entries[number]
            break
    else:
        raise NotFound(f"the file has no environment {name}", remedy="holdfast environment list")
    if not entries:
        del document["environments"]  # an empty one would be written as no TOML
    if document.get("default") == name:
        del document["default"]
    return tomlkit.dumps(document)
