"""The policies that have a name, asked about paths."""

from holdfast.sandbox.policy.policy import Access, Network, Where, bind
from holdfast.sandbox.policy.presets import full_access, read_only, workspace_write
from tests.support.rows import every_row

WHERE = Where("/w", ("/w",), tmpdir="/var/tmp/me")


def test_read_only_reads_everything_and_writes_nothing() -> None:
    bound = bind(read_only(), WHERE)
    assert bound.full_read
    assert not bound.writable_roots()
    assert bound.network is Network.OFF
    assert not bound.explain("/w/x", Access.WRITE).allowed


def test_full_access_restricts_nothing() -> None:
    bound = bind(full_access(), WHERE)
    assert bound.full_read
    assert bound.full_write
    assert bound.network is Network.ON


def test_workspace_write_writes_the_workspace_temporary_and_extra_paths() -> None:
    bound = bind(workspace_write(["/cache"], network=Network.ON), WHERE)
    assert bound.full_read
    assert bound.network is Network.ON
    assert [root.path for root in bound.writable_roots()] == ["/cache", "/tmp", "/w", "/var/tmp/me"]


@every_row("name", [".git", ".agents", ".codex", ".aws"])
@every_row("root", ["/w", "/tmp", "/cache"])
def test_workspace_write_protects_the_metadata_of_every_root(root: str, name: str) -> None:
    bound = bind(workspace_write(["/cache"]), WHERE)
    assert not bound.explain(f"{root}/{name}/x", Access.WRITE).allowed
    assert bound.explain(f"{root}/{name}/x", Access.READ).allowed
    assert bound.explain(f"{root}/sub/{name}/x", Access.WRITE).allowed


def test_temporary_directories_can_be_left_out() -> None:
    bound = bind(workspace_write(tmpdir=False, slash_tmp=False), WHERE)
    assert [root.path for root in bound.writable_roots()] == ["/w"]
