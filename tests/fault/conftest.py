"""The faulty part is another process: the loop under the test plays no part."""

import pytest

from tests.support.tiers import ASYNCIO, Backend


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO
