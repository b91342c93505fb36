"""Whose file was refused, and what would help."""

import dataclasses

from msgspec.structs import replace

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import Denied, Source
from holdfast.agents.worker.refusals import Tally, Whose, evidence_of
from holdfast.wire.processes import DeniedCall as Refusal

REFUSAL = Refusal(
    process_id="worker",
    number=1,
    access="create",
    asked=".local",
    path="/home/x/.local/share/opencode/opencode.db",
    syscall="openat",
    errno="EROFS",
    predicted=True,
    pid=7,
    comm="opencode",
    count=2,
    at_ms=0,
    rule="outside the writable roots /w",
    grant="--allow-write /home/x/.local/share/opencode",
)
WHOSE = Whose(CATALOG["opencode"], home="/home/x", work="/w", state="/s", relocated=False)


def denied(refusal: Refusal, whose: Whose = WHOSE) -> Denied:
    found = evidence_of(refusal, whose, 5.0)
    assert found.source is Source.DENIAL
    assert found.at == 5.0
    assert isinstance(found.claim, Denied)
    return found.claim


def test_a_path_of_the_clis_state_is_called_what_it_is_with_the_variable_that_moves_it() -> None:
    claim = denied(REFUSAL)
    assert "database" in claim.role
    assert claim.relocation == "XDG_DATA_HOME=/s/data"
    assert (claim.count, claim.rule, claim.grant) == (2, REFUSAL.rule, REFUSAL.grant)


def test_any_other_path_has_no_role() -> None:
    claim = denied(replace(REFUSAL, path="/etc/passwd"))
    assert (claim.role, claim.relocation) == ("", "")


def test_what_is_relocated_already_is_not_suggested_again() -> None:
    moved = dataclasses.replace(WHOSE, relocated=True)
    claim = denied(replace(REFUSAL, path="/s/data/opencode/opencode.db"), moved)
    assert "database" in claim.role
    assert claim.relocation == ""


def test_totals_become_what_is_new_also_for_whoever_takes_over() -> None:
    first = Tally(())
    assert [first.fresh(replace(REFUSAL, count=count)) for count in (1, 3, 3, 7)] == [1, 2, 0, 4]
    item = evidence_of(replace(REFUSAL, count=7), WHOSE, 1.0)
    second = Tally([item])
    assert [second.fresh(replace(REFUSAL, count=count)) for count in (7, 8)] == [0, 1]
    assert second.fresh(replace(REFUSAL, path="/other", count=2)) == 2
