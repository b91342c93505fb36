"""For mkdocs: links that mean something in the repository mean something on the site.

A link to a file that is not on the site becomes its name, one to a folder of pages leads to its first page.
"""

import re
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_OUTSIDE: Final = re.compile(r"\[([^]]+)\]\((?:\.\./)+((?:examples|src|tests|tools|bench)/[^)]+)\)")
_FOLDER: Final = re.compile(r"\]\(((?![a-z]+:)[^)#]*/)\)")


def on_page_markdown(markdown: str, *, page: Any, **_more: Any) -> str:
    here = (DOCS / page.file.src_uri).parent

    def first_page(link: re.Match[str]) -> str:
        pages = sorted((here / link[1]).glob("*.md"))
        return f"]({link[1]}{pages[0].name})" if pages else link[0]

    return _FOLDER.sub(first_page, _OUTSIDE.sub(r"\1 (`\2` in the repository)", markdown))
