"""Rules for every test: both event loops, and no silent gaps where nobody looks."""

import os
from collections.abc import Generator

import pytest

from tests.support import patience, root_only


def pytest_configure(config: pytest.Config) -> None:
    """Measure once, before any worker starts; pytest's own bound on a test waits as long as the test may."""
    if patience.VARIABLE not in os.environ:
        os.environ[patience.VARIABLE] = f"{patience.measure():.2f}"
    config.pluginmanager.register(root_only)  # who runs the tests, and what only root can try
    config.option.timeout = float(config.getini("timeout")) * float(os.environ[patience.VARIABLE])


def pytest_report_header() -> str:
    return f"patience: {os.environ[patience.VARIABLE]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(patience.patient(mark.args[0])), append=False)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skipped test is a failed one: what could not be tried there holds for nobody."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI forbids: {report.longrepr}"
    return report
