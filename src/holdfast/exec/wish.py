"""What the options of `holdfast exec` ask for, wherever the command is to run. Pure module."""

from holdfast.errors import UsageError
from holdfast.light import TYPE_CHECKING, Sequence, StrEnum, value
from holdfast.sandbox.plan.select import ANY, Choice

if TYPE_CHECKING:
    from holdfast.sandbox.limits import Limits


class Preset(StrEnum):
    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    FULL_ACCESS = "full-access"


@value
class Wish:
    """What the flags ask for. Paths are as typed, against the current directory."""

    preset: Preset = Preset.WORKSPACE_WRITE
    profile: str | None = None  # a file, instead of a preset
    allow_write: Sequence[str] = ()
    allow_read: Sequence[str] = ()
    deny: Sequence[str] = ()
    allow_socket: Sequence[str] = ()
    network: bool | None = None  # None: as in the preset or the profile
    cwd: str | None = None
    choice: Choice = ANY
    loopback_ports: Sequence[int] = ()
    watch: bool = False
    allow_credentials: bool = False
    allow_host: Sequence[str] = ()
    deny_host: Sequence[str] = ()
    allow_private: bool = False
    ask_network: bool = False  # the user is asked about hosts that no rule decides about
    allow_net: Sequence[str] = ()  # clients whose own settings name hosts
    net_limit: Sequence[str] = ()  # how much may pass to hosts
    secrets: Sequence[str] = ()  # keys that stay outside
    pass_env: Sequence[str] = ()  # names of variables that are passed although they hold a secret
    limits: "Limits | None" = None  # on resources; None: no options, though a profile may have some


def preset(flags: Sequence[str]) -> Preset:
    """The preset that these flags name; the default if none does.

    Raises:
        UsageError: they exclude each other.
    """
    if len(flags) > 1:
        raise UsageError(f"{' and '.join(flags)} exclude each other")
    named = {f"--{value}": value for value in Preset}
    return next((named[flag] for flag in flags if flag in named), Preset.WORKSPACE_WRITE)
