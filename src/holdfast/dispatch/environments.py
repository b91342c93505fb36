"""The environments of this home as a dispatcher sees them: checked only while there is work for them.

An environment that no profile and no task names is never dialled: over ssh that would start a server there.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from holdfast.agents.fleet import looking
from holdfast.agents.fleet.facts import EnvironmentFacts
from holdfast.board.rules.assign import Places
from holdfast.client.environmentfile import LOCAL
from holdfast.client.environments import FILE, Environments
from holdfast.dispatch.rules import fleet
from holdfast.dispatch.rules.profiles import WorkerProfile
from holdfast.errors import UsageError

log = logging.getLogger(__name__)

_NO_SESSION = "a program as an environment keeps no session: its workers would end with its pipe"


class FleetWatch:
    """The environments of one dispatcher; `clock` is wall-clock time."""

    def __init__(self, home: Path, clock: Callable[[], float]) -> None:
        self._home = home
        self._clock = clock
        self._facts: dict[str, EnvironmentFacts] = {}
        self._named: dict[str, str] = {}
        self._sign: tuple[int, int] | None = None

    def list_named(self) -> Mapping[str, str]:
        """The environments of the home's file, each with why the board cannot use it, or ""."""
        file = self._home / FILE
        try:
            found = file.stat()
            sign = (found.st_mtime_ns, found.st_size)
        except OSError:
            self._named, self._sign = {}, None
            return self._named
        if sign != self._sign:
            try:
                listed = Environments.load(file)
                entries = {name: listed.entry(name) for name in listed.ids if name != LOCAL}
                self._named = {
                    name: "" if one.url or one.registry_url else _NO_SESSION for name, one in entries.items()
                }
            except UsageError as exc:
                log.warning("environments stay as they were", extra={"missing": str(exc)[:200]})
            self._sign = sign
        return self._named

    def recall(self) -> None:
        """Load what other processes have recorded about the environments, without dialling any."""
        known = {name: looking.read_known(self._home, name) for name in self.list_named()}
        self._facts = {name: found for name, found in known.items() if found is not None}

    def make_places(self, running: Mapping[str, int], profiles: Collection[WorkerProfile]) -> Places:
        return fleet.make_places(self.list_named(), self._facts, running, profiles)

    async def look(self, wanted: Collection[str]) -> bool:
        """Look at the wanted environments that are due, keep the results; return whether there were any."""
        named, now = self.list_named(), self._clock()
        due = [
            name
            for name in wanted
            if name in named and not named[name] and fleet.is_due(self._facts.get(name), now)
        ]
        await asyncio.gather(*(self._look(name) for name in due))
        return bool(due)

    async def _look(self, name: str) -> None:
        before = self._facts.get(name) or looking.read_known(self._home, name)
        found = await looking.look(self._home, name, before, self._clock())
        self._facts[name] = found
        if before is None or before.reached != found.reached:
            words = "an environment is reached" if found.reached else "an environment is not reached"
            log.warning(words, extra={"missing": f"{name}: {found.error}" if found.error else name})
        with contextlib.suppress(OSError):
            await asyncio.to_thread(looking.keep, self._home, name, found)
