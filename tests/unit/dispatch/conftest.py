"""A dispatcher's surroundings without a process, on a loop whose clock jumps."""

from pathlib import Path

import pytest

from tests.support.fakes import Scene
from tests.support.jumping import JumpingLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": JumpingLoop}


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    home = tmp_path / "home"
    home.mkdir()
    return Scene(home)
