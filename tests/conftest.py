"""Rules for every test: one patience, an event loop, and no silent gaps where nobody looks."""

import gc
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.support import order, patience, proc, root_only, warm
from tests.support.deep_record import DeepRecord
from tests.support.starts import Starts
from tests.support.tiers import DEEP, asyncio_first

__all__ = ["asyncio_first"]

PROPERTIES: Final = Path(__file__).parent / "property"
SLOW: Final = Path(__file__).parents[1] / "docs" / "records" / "slow_tests.json"


# Every run tries the same examples; a deep one tries more, and others each time.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the clock decides nothing
settings.register_profile("quick", parent=_PATIENT, max_examples=25, derandomize=True, database=None)
settings.register_profile("deep", parent=_PATIENT, max_examples=300, derandomize=False, database=None)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-deep", type=Path, help="write down there what this run of the deep tests did")


def pytest_configure(config: pytest.Config) -> None:
    """Measure once, before any worker starts; pytest's own bound on a test waits as long as the test may."""
    if patience.VARIABLE not in os.environ:
        os.environ[patience.VARIABLE] = f"{patience.measure():.2f}"
    if (file := config.getoption("--record-deep")) is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DeepRecord(file, _asked_for(config)))
    if config.option.xmlpath:
        config.pluginmanager.register(Starts())
    config.pluginmanager.register(root_only)  # who runs the tests, and what only root can try
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start must heed Ctrl-C
    config.option.timeout = float(config.getini("timeout")) * float(os.environ[patience.VARIABLE])


def _asked_for(config: pytest.Config) -> str:
    """The files and folders on the command line; nothing if the tests were not named."""
    return "" if config.args_source is not pytest.Config.ArgsSource.ARGS else " ".join(config.args)


@pytest.fixture(autouse=True)
def own_state() -> Iterator[None]:
    """Homes of a test are written down there, made when needed, and not among those of whoever runs it.

    Outside of /tmp, where commands may write; and short, because sockets lie there. What a test patches is
    put back before its `tmp_path` is removed, so this patches by itself.
    """
    folder = f"/var/tmp/hf-{os.getpid()}-{time.monotonic_ns()}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", folder)
        patched.delenv("XDG_RUNTIME_DIR", raising=False)
        yield
    if os.path.isdir(folder):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collectstart() -> None:
    """What is collected is kept: to look for garbage in it is in vain, now and after each of the tests."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_report_header() -> str:
    return f"patience: {os.environ[patience.VARIABLE]}"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Marks are read and the order is shuffled between; then what takes long comes first."""
    if config.getoption("--hypothesis-profile") == "deep":
        for item in items:
            if item.path.is_relative_to(PROPERTIES):
                item.add_marker(DEEP)
    yield
    known = json.loads(SLOW.read_text("utf-8")) if SLOW.is_file() else {}
    items[:] = order.deal(
        items,
        getattr(config, "workerinput", {"workercount": 1})["workercount"],
        module_of=lambda item: item.path,
        is_long=lambda item: (
            item.name.partition("[")[0] in known or item.get_closest_marker("timeout") is not None
        ),
    )
    for item in items:
        if (mark := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(patience.patient(mark.args[0])), append=False)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """Whatever the tests of this process started is gone when they are done."""
    yield
    warm.close()
    until = time.monotonic() + patience.patient(20.0)
    while (left := proc.below(os.getpid())) and time.monotonic() < until:
        time.sleep(0.05)
    assert [proc.command_line(one.pid) for one in left] == []
    if (background := sys.modules.get("holdfast.agents.supervisor.background")) is not None:
        for process in background._STARTED:  # daemons; those not waited for are warned of at the end
            process.poll()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be tried here, once for each reason, after everything else."""
    reasons = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("missing here, so not tried")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} tests: {reason}")


def reason_of(report: pytest.TestReport) -> str:
    """Why it was skipped; pytest keeps that behind file and line."""
    match report.longrepr:
        case (_, _, str(reason)):
            return reason.removeprefix("Skipped: ")
        case other:
            return str(other)


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
