"""What the user's ssh prints is read up to a bound, and for no longer than it is waited for."""

import pytest

from holdfast.client.installing import install
from holdfast.client.links import ssh
from holdfast.errors import OperationFailed


def test_output_errors_and_exit_code_are_had() -> None:
    code, said, errors = install._run(["sh", "-s"], 60.0, "echo out; echo err >&2; exit 3\n")
    assert (code, said, errors) == (3, "out\n", "err\n")


def test_a_machine_that_never_stops_talking_is_not_listened_to() -> None:
    with pytest.raises(OperationFailed, match="says more"):
        install._run(["sh", "-c", "exec yes"], 60.0)
    _, _, errors = install._run(["sh", "-c", "yes | head -c 500000 >&2; exec >&-; sleep 0.1; exit 1"], 60.0)
    assert len(errors) <= ssh.MAX_SAID_BYTES


def test_one_that_never_answers_is_given_up() -> None:
    with pytest.raises(OperationFailed, match="takes more"):
        install._run(["sleep", "600"], 0.05)


def test_without_ssh_it_is_said() -> None:
    with pytest.raises(OperationFailed, match="cannot be run"):
        install._run(["/no/such/ssh"], 1.0)
