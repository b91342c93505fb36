"""What only root can try: left out for an ordinary user, and listed at the end of the run with its reason.

A plugin of pytest, registered by `tests/conftest.py`. Left out is not skipped: a skip says that this machine
lacks something, and is a failure with CI=true; here nothing is missing that an ordinary user could have.
"""

from collections import Counter
from typing import Any, Final

import pytest

from tests.support import identity, product_copy

_MARK: Final = "root_only"
_KEY: Final = pytest.StashKey["Counter[str]"]()
_OUTPUT: Final = "left_out"  # how a worker of xdist tells it


def root_only(reason: str) -> pytest.MarkDecorator:
    """A mark for a test, or for a row of one, that an ordinary user cannot run."""
    return pytest.mark.root_only(reason)


# Every identity that a test of the sandbox is tried with, to be the `params` of a fixture or of a test.
ROOT: Final = pytest.param(0, id="root", marks=root_only("to be tried as root"))
IDENTITIES: Final = (ROOT, pytest.param(identity.USER, id="user"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARK}(reason): left out, and listed, when an ordinary user runs the tests"
    )
    config.stash[_KEY] = Counter()
    if not hasattr(config, "workerinput"):
        product_copy.reserve()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        product_copy.remove()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if identity.AS_ROOT:
        return
    marked = [(item, item.get_closest_marker(_MARK)) for item in items]
    config.stash[_KEY].update(str(mark.args[0]) for _, mark in marked if mark)
    config.hook.pytest_deselected(items=[item for item, mark in marked if mark])
    items[:] = [item for item, mark in marked if not mark]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        counted = session.config.stash[_KEY]
        output[_OUTPUT] = dict(counted)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker of xdist collects all tests, so that the most of any is what there is."""
    counted = node.config.stash[_KEY]
    for reason, count in getattr(node, "workeroutput", {}).get(_OUTPUT, {}).items():
        counted[reason] = max(counted[reason], count)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if counted := config.stash[_KEY]:
        terminalreporter.section("not applicable to an ordinary user")
        for reason, count in sorted(counted.items()):
            terminalreporter.line(f"{count} need root: {reason}")
