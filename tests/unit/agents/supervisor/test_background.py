"""Whether there is an exec server."""

import socket
from pathlib import Path

from holdfast.agents.supervisor.background import is_listening


def test_an_exec_server_that_accepts_nobody_is_there_and_is_not_waited_for(tmp_path: Path) -> None:
    assert not is_listening(tmp_path)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(tmp_path / "exec.sock"))
        server.listen(0)
        first.connect(str(tmp_path / "exec.sock"))  # nobody else has room now
        assert is_listening(tmp_path)
        assert is_listening(tmp_path)
    assert not is_listening(tmp_path)
