"""Add environments to the file and remove them; everything else in it keeps its bytes."""

from holdfast.errors import NotFound


def add(text: str, name: str, url: str, *, default: bool) -> str:
    """The text of the file with one more environment. The caller checks it by parsing it."""
    import tomlkit  # slow to import, and needed only for edits

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
    """The text of the file without that environment, and without `default` if it named it.

    Raises:
        NotFound: the file has no environment of this name.
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
        del document["environments"]  # an empty one would not be written as valid TOML
    if document.get("default") == name:
        del document["default"]
    return tomlkit.dumps(document)
