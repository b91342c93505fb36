"""How straight the way of a request is: the modules that a confined start crosses, counted as it runs."""

from pathlib import Path

import pytest

from tools import walks

MOST = 42  # of those that a start crosses: as many as right after the move into rooms
# A class and its subclass, which says how it waits; a transport on which a message is answered at once.
CALLED_BACK = {
    ("sandbox/launcher/launcher.py", "sandbox/launcher/children.py"),
    ("server/edges/websocket.py", "server/connection.py"),
}


@pytest.mark.deep
def test_a_confined_start_crosses_few_modules_and_each_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    walk = walks.walk_start(walks.Marked(tmp_path, "HEAD"), tmp_path)
    assert {"server/connection.py", "sandbox/backends/confined.py"} <= walk.modules
    assert len(walk.modules) <= MOST, sorted(walk.modules)
    assert {*walk.called_back} <= CALLED_BACK
