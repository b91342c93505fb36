"""For mkdocs: a link to a file of the repository that is not part of the site becomes its name."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+((?:examples|src|tests|tools|bench)/[^)]+)\)")


def on_page_markdown(markdown: str, **_more: Any) -> str:
    return _OUTSIDE.sub(r"\1 (`\2` in the repository)", markdown)
