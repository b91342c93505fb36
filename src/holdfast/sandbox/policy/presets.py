"""The policies that have a name. Pure module."""

from collections.abc import Iterable

from holdfast.sandbox.policy.policy import (
    PROTECTED_NAMES,
    Access,
    At,
    Network,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
)


def read_only(network: Network = Network.OFF) -> Policy:
    """Everything readable, nothing writable."""
    return Policy((Rule(Special(Place.ROOT), Access.READ),), network)


def workspace_write(
    extra_writable: Iterable[str] = (),
    *,
    network: Network = Network.OFF,
    tmpdir: bool = True,
    slash_tmp: bool = True,
) -> Policy:
    """Everything readable; the workspace roots, the temporary directories and these paths writable."""
    places = [Special(Place.PROJECT_ROOTS)]
    places += [Special(Place.SLASH_TMP)] if slash_tmp else []
    places += [Special(Place.TMPDIR)] if tmpdir else []
    return Policy(
        (
            Rule(Special(Place.ROOT), Access.READ),
            *(Rule(place, Access.WRITE) for place in places),
            *(Rule(At(path), Access.WRITE) for path in extra_writable),
            *(
                Rule(Special(Place.PROJECT_ROOTS, name), Access.READ, skip_missing=True)
                for name in PROTECTED_NAMES
            ),
        ),
        network,
    )


def full_access() -> Policy:
    """No sandbox at all."""
    return Policy(None, Network.ON, PolicyKind.DISABLED)
