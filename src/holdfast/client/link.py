"""What a session and a transport know of each other."""

from typing import Protocol

from holdfast.errors import HoldfastError


class Receiver(Protocol):
    """Who gets the messages of a link."""

    def opened(self, link: "Link") -> None:
        """Before the first message."""

    def received(self, message: bytes | memoryview) -> None:
        """One message; a view is good until this returns.

        Raises:
            RemoteProtocolError: the link is to be dropped for it.
        """

    def ended(self, error: HoldfastError) -> None:
        """Once, after the last message of an opened link."""

    def writable(self, now: bool) -> None:
        """Whether more may be sent without piling up."""


class Link(Protocol):
    """One physical connection."""

    def send(self, message: bytes) -> None:
        """Queue one message, in order; never blocks."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self, error: HoldfastError) -> None:
        """Drop it now; the receiver's `ended` gets `error`."""

    async def aclose(self) -> None:
        """Say farewell and wait, for a bounded time, until nothing of it is left."""
