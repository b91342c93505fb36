"""What the rules for every test say of what could not be tried."""

import pytest

pytest_plugins = ["pytester"]

MODULE = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_with_a_tool(n):
    pytest.skip("the tool is not installed: install it")

def test_other():
    pass
"""


@pytest.fixture
def under_the_rules(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport, pytest_terminal_summary")
    pytester.makepyfile(MODULE)
    return pytester


def test_what_is_missing_is_listed_once_at_the_end(
    under_the_rules: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    result = under_the_rules.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["*missing here, so not tried*", "    3 tests: the tool is not installed*"])
    assert result.ret == pytest.ExitCode.OK


def test_what_is_missing_is_red_where_nobody_looks(
    under_the_rules: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = under_the_rules.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(passed=1, failed=3)
