"""The options that say what a command may do, for every command that runs one."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from holdfast.run import Wish
    from holdfast.sandbox.plan.select import Choice

backend_option = click.option(
    "--backend",
    type=click.Choice(["auto", "namespaces", "bwrap", "landlock"]),
    default="auto",
    show_default=True,
    help="Which sandbox to use; auto takes the strongest that works here.",
)
degraded_option = click.option(
    "--degraded", is_flag=True, help="Run also if only a part can be enforced; what is missing is said."
)
_OPTIONS = (
    click.option("--read-only", is_flag=True, help="Let it read everything and write nothing."),
    click.option(
        "--workspace-write",
        is_flag=True,
        help="The directory it runs in, /tmp and $TMPDIR are writable too.  [default]",
    ),
    click.option("--full-access", is_flag=True, help="Set no limits but those of the other options."),
    click.option("--profile", metavar="FILE", help="Take the limits from a TOML file."),
    click.option(
        "--allow-write", metavar="PATH", multiple=True, help="Let it write PATH too. Can be repeated."
    ),
    click.option(
        "--allow-read", metavar="PATH", multiple=True, help="Let it read PATH too. Can be repeated."
    ),
    click.option(
        "--deny",
        metavar="PATH|GLOB",
        multiple=True,
        help="Let it neither read nor write PATH. Can be repeated.",
    ),
    click.option("--network", type=click.Choice(["on", "off"]), help="[default: off, with --full-access on]"),
    click.option(
        "--loopback-port",
        metavar="PORT",
        type=click.IntRange(1, 65535),
        multiple=True,
        help="Network off but for this TCP port of the machine's own loopback. Can be repeated.",
    ),
    click.option("--cwd", metavar="DIR", help="Run in this directory, which becomes the workspace."),
    backend_option,
    degraded_option,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The options as they were given."""

    read_only: bool
    workspace_write: bool
    full_access: bool
    profile: str | None
    allow_write: tuple[str, ...]
    allow_read: tuple[str, ...]
    deny: tuple[str, ...]
    network: str | None
    loopback_port: tuple[int, ...]
    cwd: str | None
    backend: str
    degraded: bool

    def wish(self) -> "Wish":
        """What they ask for.

        Raises:
            UsageError: they cannot be used together.
        """
        from holdfast import run

        presets = {
            "--read-only": self.read_only,
            "--workspace-write": self.workspace_write,
            "--full-access": self.full_access,
            "--profile": self.profile is not None,
        }
        return run.Wish(
            run.preset([flag for flag, given in presets.items() if given]),
            self.profile,
            self.allow_write,
            self.allow_read,
            self.deny,
            network=None if self.network is None else self.network == "on",
            cwd=self.cwd,
            choice=choice_of(self.backend, degraded=self.degraded),
            loopback_ports=self.loopback_port,
        )

    def local(self) -> dict[str, bool]:
        """Which of those were given that mean nothing on another machine."""
        return {
            "--backend": self.backend != "auto",
            "--degraded": self.degraded,
            "--loopback-port": bool(self.loopback_port),
        }


def limited(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one argument, `limits`."""

    @functools.wraps(command)
    def gathered(**given: Any) -> None:
        own = {name: given.pop(name) for name in Limits.__dataclass_fields__}
        command(limits=Limits(**own), **given)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


def choice_of(backend: str, *, degraded: bool) -> "Choice":
    """What these two options leave to us."""
    from holdfast.sandbox.plan.select import Backend, Choice

    return Choice(None if backend == "auto" else Backend(backend), degraded)
