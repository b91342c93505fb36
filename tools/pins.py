"""Write requirements/*.txt from requirements/*.in: exact versions and hashes, no index address."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
SETS: Final[dict[str, list[str] | None]] = {
    "run": ["fast", "metrics", "web"],
    "test": ["fast", "metrics", "nats", "otel", "postgres", "remote", "web"],
    "bench": ["fast"],
    "docs": None,  # the site alone
    "hermes": None,  # an environment of its own, without ours
}
HEADER: Final = "# Made by `make pins` from {name}; do not edit.\n"


def main() -> None:
    """Pin every set; later ones are constrained by earlier ones."""
    for name, extras in SETS.items():
        ours = [] if extras is None else ["../pyproject.toml", *(f"--extra={extra}" for extra in extras)]
        source = ROOT / "requirements" / f"{name}.in"
        pinned = subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--upgrade"),
                *("--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"),
                *("--python-version", "3.11", source.name, *ours),
            ],
            cwd=source.parent,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        (source.parent / f"{name}.txt").write_text(HEADER.format(name=source.name) + pinned, "utf-8")


if __name__ == "__main__":
    main()
