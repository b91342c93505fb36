"""Where the `holdfast` command starts. It lies outside the package `holdfast` on purpose.

The package index has a distribution `holdfast` of somebody else, whose import name is ours too. Installed
beside ours (`holdfast-agents`), each overwrites files of the other. A module that the other one cannot
replace can say so, where a traceback of half a package would say nothing. Standard library only; when all is
well, only one name is looked at.
"""

import sys

OTHER = "holdfast"  # their distribution, or ours under its name before 0.2.0


def main() -> None:
    """Entry point."""
    try:
        from holdfast import DISTRIBUTION  # theirs has no such name  # noqa: F401
        from holdfast.entry import main as start
    except ImportError as exc:
        version = find_other_distribution()
        if version is None and "holdfast" not in (exc.name or ""):
            raise  # something else is missing
        sys.stderr.write(f"holdfast: {explain(version)}\n  try: {remedy()}\n")
        sys.exit(1)
    start()


def find_other_distribution() -> str | None:
    """The version of the distribution `holdfast` in this environment; None where there is none."""
    from importlib import metadata  # costs as much as the rest of a start: only when asked

    try:
        return metadata.version(OTHER)
    except metadata.PackageNotFoundError:
        return None


def explain(version: str | None) -> str:
    """One sentence on what is wrong."""
    if version is None:
        return "files of the package are missing; another package of the same name may have taken them along"
    return f"the distribution {OTHER} {version} is installed beside holdfast-agents: their files collide"


def remedy() -> str:
    """What to type: the other one goes, then ours is put back whole."""
    import shlex

    pip = f"{shlex.quote(sys.executable)} -m pip"
    return f"{pip} uninstall -y {OTHER}; {pip} install --force-reinstall --no-deps holdfast-agents"
