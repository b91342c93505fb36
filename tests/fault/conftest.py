"""The faulty part is another process: the loop under the test plays no part."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
