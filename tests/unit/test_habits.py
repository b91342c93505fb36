"""Files beside the code that nobody would notice to be wrong: hooks, image, templates."""

import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import holdfast
from tests.support.rows import every_row
from tools import get_packages

ROOT: Final = Path(__file__).parents[2]


def parsed(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_hooks_run_what_ci_runs() -> None:
    ci = re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    wanted = {target for line in ci for target in line.split()} | {"unit"}  # a part of `make test`, at once
    hooks = [hook for repo in parsed(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {hook["entry"] for hook in hooks} == {f"make {target}" for target in wanted}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert wanted <= targets


def test_the_image_has_what_the_tests_need_and_runs_them() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    [packages] = re.findall(r"--no-install-recommends \\\n(.+?) \\\n", text)
    assert set(packages.split()) == {*get_packages.PACKAGES, "git", "make"}
    assert 'CMD ["make", "test"]' in text
    for source in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / one).exists() for one in source.split())


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="no hadolint for this machine"
)
def test_the_image_passes_its_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@every_row("name", sorted(path.name for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_a_template_has_what_its_form_needs(name: str) -> None:
    form = parsed(f".github/ISSUE_TEMPLATE/{name}")
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)


def test_the_page_of_the_api_lists_what_is_offered() -> None:
    text = (ROOT / "docs/reference/api.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert listed >= set(holdfast.__all__)
    names = text.split("## Names")[1].split("###")[0] + text.split("## Errors")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", names, re.MULTILINE)) == set(holdfast.__all__)
    assert (Path(holdfast.__file__).parent / "py.typed").exists()
