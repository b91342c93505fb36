"""Who attacks: root, and an ordinary user."""

from collections.abc import Iterator

import pytest

from tests.support.exec_command import Place, place
from tests.support.root_only import IDENTITIES


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Somebody with a workspace, a home around it and a directory beside it, both out of bounds."""
    with place(request.param) as made:
        yield made
