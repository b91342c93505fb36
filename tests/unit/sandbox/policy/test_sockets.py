import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.policy import Need, Where, bind, needs_of, workspace_write
from holdfast.sandbox.policy.sockets import AGENT_GRANT, check_granted, find_risk, grant_for

RISKY = [
    "/var/run/docker.sock",
    "/run/user/1000/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/systemd/private",
    "/run/dbus/system_bus_socket",
    "/run/user/1000/bus",
    "/tmp/dbus-Ab12",
    "/tmp/tmux-0/default",
    "/run/screen/S-me/1.tty",
    "/run/user/1000/gnupg/S.gpg-agent.extra",
    "/tmp/.X11-unix/X0",
    "/run/user/1000/wayland-0",
]


@pytest.mark.parametrize("path", RISKY)
def test_what_hands_over_more_than_a_service_is_known_and_never_suggested(path: str) -> None:
    assert find_risk(path) is not None
    assert grant_for(path) is None


@pytest.mark.parametrize(
    ("path", "grant"),
    [
        ("/run/postgresql/.s.PGSQL.5432", "--allow-socket /run/postgresql/.s.PGSQL.5432"),
        ("/run/a b/s", "--allow-socket '/run/a b/s'"),
        ("/tmp/ssh-XXab/agent.42", AGENT_GRANT),
        ("/run/user/1000/keyring/ssh", AGENT_GRANT),
        ("@abstract", None),
        ("/home/u/.local/state/holdfast/supervisor.sock", None),
    ],
)
def test_the_smallest_grant_is_named(path: str, grant: str | None) -> None:
    assert grant_for(path) == grant


@pytest.mark.parametrize(
    "path", ["/h/board.sock", "/x/exec.sock", "/x/supervisor.sock", "/s/holdfast/any", "/x/.holdfast/s"]
)
def test_a_socket_of_ours_is_granted_to_nobody(path: str) -> None:
    with pytest.raises(UsageError, match="Holdfast's own"):
        check_granted([path], home="/h", most=4)


def test_only_so_many_are_granted() -> None:
    check_granted(["/a", "/b"], home="/h", most=2)
    with pytest.raises(UsageError, match="more than 2"):
        check_granted(["/a", "/b", "/c"], home="/h", most=2)


def test_of_our_own_sockets_only_that_of_a_run_is_granted_and_no_backend_has_to_have_it() -> None:
    """It takes this run's token alone, and whoever does not reach it has an outbox."""
    run = "/run/user/1/holdfast/runs/r_1/board.sock"
    check_granted([run], home="/h", most=1)
    for path in ("/run/user/1/holdfast/board.sock", "/x/runs/a/b/board.sock", f"{run}/exec.sock"):
        with pytest.raises(UsageError, match="Holdfast's own"):
            check_granted([path], home="/h", most=1)
    where = Where("/w", ("/w",))
    for path, needed in ((run, False), ("/run/s", True)):
        needs = needs_of(bind(workspace_write().allow_socket(path), where))
        assert (Need.UNIX_SOCKETS in needs) == needed
