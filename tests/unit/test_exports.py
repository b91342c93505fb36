"""What `import holdfast` offers, and what it costs."""

import ast
from pathlib import Path

import holdfast
from tests.support.rows import every_row


@every_row("name", sorted(set(dir(holdfast)) - set(vars(holdfast))))
def test_every_name_offered_is_there(name: str) -> None:
    assert getattr(holdfast, name).__name__ == name


def test_the_names_people_need_are_offered() -> None:
    needed = {"connect", "Environment", "Process", "Result", "Policy", "Output", "Exited", "Closed"}
    assert needed <= set(dir(holdfast))


def test_a_name_nobody_offers_is_an_attribute_error() -> None:
    assert not hasattr(holdfast, "nonsense")


def test_the_import_alone_loads_nothing_else_of_ours() -> None:
    """Every command pays for it: the launcher is a module of this package."""
    body = ast.parse(Path(holdfast.__file__).read_text("utf-8")).body
    at_once = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in at_once if isinstance(node, ast.ImportFrom)] == []
    assert not [node for node in at_once if isinstance(node, ast.Import)]
