"""What is started in a worker's place: as before, and one grant more."""

from typing import Any

import pytest

from holdfast.agents.supervisor.granting import next_id, regrant
from holdfast.agents.supervisor.messages import GrantParams
from holdfast.agents.worker.book import KeptWish
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.errors import UsageError
from holdfast.wire.permissions import AllowedHosts
from holdfast.wire.processes import SecretKey
from tests.support.rows import every_row

ENVIRON = {"HOME": "/home/u", "PATH": "/bin", "SECRET": "s"}


def kept(**more: Any) -> KeptWish:
    keyed, variables = more.pop("keyed", False), more.pop("variables", ["HOME", "PATH"])
    wish = WorkerSpec(
        **{
            "agent": "codex",
            "cwd": "/work",
            "env": {},
            "prompt": "do it",
            "id": "w",
            "writable": ["/a"],
            **more,
        }
    )
    return KeptWish(wish=wish, variables=variables, keyed=keyed)


def test_it_is_asked_for_again_with_what_it_had_and_one_thing_more() -> None:
    again = regrant(kept(model="m"), GrantParams(worker="w", writable=["/b"], environ=ENVIRON))
    assert (again.agent, again.cwd, again.prompt, again.model) == ("codex", "/work", "do it", "m")
    assert (again.id, again.after, again.writable) == ("w-r2", "w", ["/a", "/b"])
    assert again.env == {"HOME": "/home/u", "PATH": "/bin"}  # and nothing that it was not passed before


def test_a_credential_that_is_granted_is_withheld_no_more_and_the_others_are() -> None:
    hidden = ["/home/u/.aws", "/home/u/.ssh"]
    again = regrant(kept(secret=hidden), GrantParams(worker="w", readable=["/home/u/.aws"], environ=ENVIRON))
    assert again.secret == ["/home/u/.ssh"]
    whole = regrant(kept(secret=hidden), GrantParams(worker="w", readable=["/home/u"], environ=ENVIRON))
    assert whole.secret == hidden


@every_row(
    ("wish", "asked", "word"),
    [
        ({}, {}, "nothing"),
        ({"network": True}, {"network": True}, "already"),
        ({"network": True}, {"hosts": ["a.test"]}, "already"),
        ({}, {"hosts": ["a.test"], "network": True}, "every host"),
        ({"unconfined": True}, {"writable": ["/b"]}, "already"),
        ({"keyed": True}, {"writable": ["/b"]}, "key"),
        ({"variables": ["HOLDFAST_RUN"]}, {"writable": ["/b"]}, "board"),
    ],
    ids=str,
)
def test_what_would_change_nothing_or_cannot_be_done_is_refused(
    wish: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    with pytest.raises(UsageError, match=word) as refused:
        regrant(kept(**wish), GrantParams(worker="w", environ=ENVIRON, **asked))
    assert refused.value.remedy


def test_the_network_is_given_to_one_that_had_none() -> None:
    assert regrant(kept(network=False), GrantParams(worker="w", network=True, environ=ENVIRON)).network


def test_starts_are_counted() -> None:
    assert [next_id("codex-1f"), next_id("codex-1f-r2"), next_id("a-rx")] == [
        "codex-1f-r2",
        "codex-1f-r3",
        "a-rx-r2",
    ]


def test_a_host_comes_to_those_that_it_has_and_the_whole_network_takes_their_place() -> None:
    had = kept(hosts=AllowedHosts(["a.test"], ["x.a.test"]))
    more = regrant(had, GrantParams(worker="w", hosts=["b.test:81", "a.test"], environ=ENVIRON))
    assert (more.network, more.hosts) == (None, AllowedHosts(["a.test", "b.test:81"], ["x.a.test"]))
    private = regrant(kept(), GrantParams(worker="w", hosts=["b.test"], private=True, environ=ENVIRON))
    assert private.hosts == AllowedHosts(["b.test"], private=True)
    client = regrant(kept(presets=["npm"]), GrantParams(worker="w", presets=["pip"], environ=ENVIRON))
    assert (client.hosts, client.presets) == (AllowedHosts([]), ["npm", "pip"])
    whole = regrant(had, GrantParams(worker="w", network=True, environ=ENVIRON))
    assert (whole.network, whole.hosts) == (True, None)


def test_a_key_that_stayed_outside_is_taken_again_or_nothing_is_started() -> None:
    had = kept(keys=[SecretKey("SECRET", "", ["api.test"])])
    again = regrant(had, GrantParams(worker="w", writable=["/b"], environ=ENVIRON))
    assert [(key.name, key.value, key.hosts) for key in again.keys] == [("SECRET", "s", ["api.test"])]
    with pytest.raises(UsageError, match=r"\$SECRET stayed outside of it, and is kept nowhere"):
        regrant(had, GrantParams(worker="w", writable=["/b"], environ={"HOME": "/home/u"}))
