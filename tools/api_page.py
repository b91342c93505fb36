"""The page of the reference about `import holdfast`: `holdfast.__all__`, with every public method."""

import inspect
from collections.abc import Iterator

import holdfast
from tools.markdown import page, table


def api_page() -> str:
    """Every name with what it is for."""
    names = sorted(holdfast.__all__, key=str.lower)
    offered = {name: getattr(holdfast, name) for name in names}
    errors = {
        name: one for name, one in offered.items() if isinstance(one, type) and issubclass(one, Exception)
    }
    values = {name: one for name, one in offered.items() if isinstance(one, str)}
    others = {name: one for name, one in offered.items() if name not in errors and name not in values}
    return page(
        "Python API",
        "What `import holdfast` offers; the package is typed (`py.typed`). Everything else may change in\n"
        "any release. A name below is removed, or changed so that callers break, only after a release that\n"
        "warns.",
        "## Names\n\n"
        + table(
            ("name", "is"),
            [(f"`{name}`", first_line(one)) for name, one in others.items()]
            + [(f"`{name}`", "a string") for name in values],
        ),
        *(
            f"### {name}\n\n" + table(("member", "is"), [(f"`{one}`", text) for one, text in members(kind)])
            for name, kind in others.items()
            if isinstance(kind, type) and any(members(kind))
        ),
        "## Errors\n\nEach has `remedy`, what to do about it, and `retryable`. [Errors](errors.md) has\n"
        "their codes.\n\n"
        + table(("name", "is raised when"), [(f"`{name}`", first_line(one)) for name, one in errors.items()]),
    )


def first_line(one: object) -> str:
    """The first sentence of its docstring; that of a dataclass without one is only its signature."""
    text = (inspect.getdoc(one) or "").partition("\n\n")[0].replace("\n", " ")
    return "" if text.startswith(f"{getattr(one, '__name__', '')}(") else text


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Its public methods, properties and fields, in the order of the source, its own only."""
    for name in dict.fromkeys((*getattr(kind, "__annotations__", {}), *vars(kind))):
        if name.startswith("_"):
            continue
        found = inspect.getattr_static(kind, name, None)
        if isinstance(found, property):
            yield name, first_line(found)
        elif inspect.isfunction(found) or isinstance(found, classmethod | staticmethod):
            made = getattr(kind, name)
            arguments = [one for one in inspect.signature(made).parameters if one != "self"]
            yield f"{name}({', '.join(arguments)})", first_line(made)
        else:
            yield name, ""
