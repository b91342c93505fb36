"""The exception tree, and the only map from an error to its codes outside. Pure module.

The first level distinguishes whose fault the error is:

    HoldfastError
      UsageError            the caller requested something invalid
        MethodNotFound      ... a method that is not implemented
      InvalidRequest        the request came at the wrong time, or the host refuses it
        PeerRefused         ... from a peer that is not admitted
        IllegalTransition   ... a transition that this task does not have
      NotFound              the file, handle or directory does not exist
      SessionAttached       the session is in use; try again shortly
      OperationFailed       the host could not do it (spawn, read, write, connect)
      RemoteProtocolError   the peer sent bytes that are not the protocol
        ProtocolMismatch    ... from the start: another service listens there
      ConnectionLost        the link died; the session may still be alive
        Unreachable         ... or was never made: no listener, or too slow
      TokenRefused          the server does not accept the token
      SessionLost           the session is over, and everything it ran
      OutputLost            events of one process are permanently lost, or our output cannot be written
      SandboxUnavailable    the host cannot enforce the policy
      StartupError          the server cannot begin to serve
      Conflict              another caller was first, or used the same name for something else
        StaleRun            ... namely the run that has taken over
      StoreDamaged          the board's file is damaged; it is not written to any more
"""

import errno

from holdfast.light import ClassVar, Final, NamedTuple


class HoldfastError(Exception):
    """Base class. `retryable` and `remedy` are part of the contract, the text is not."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class UsageError(HoldfastError):
    """The arguments are invalid."""


class MethodNotFound(UsageError):
    """There is no such method."""


class InvalidRequest(HoldfastError):
    """A valid request, but not allowed now, not here, or not by the host."""


class PeerRefused(InvalidRequest):
    """The peer has not shown that it may connect."""


class IllegalTransition(InvalidRequest):
    """The task does not have this transition in its state, or not for this caller."""


class NotFound(HoldfastError):
    """The named file, directory or handle does not exist."""


class SessionAttached(HoldfastError):
    """Another live connection owns the session."""

    retryable = True


class OperationFailed(HoldfastError):
    """The host tried and failed."""


class RemoteProtocolError(HoldfastError):
    """The peer's bytes are not a message of this protocol."""


class ProtocolMismatch(RemoteProtocolError):
    """The peer does not speak this protocol."""


class ConnectionLost(HoldfastError):
    """The link died; the session may still be alive on the other side."""

    retryable = True


class Unreachable(ConnectionLost):
    """No link was made: no server listens there, the name is unknown, or it took too long."""


class TokenRefused(HoldfastError):
    """The server does not accept the token, or requires one."""


class SessionLost(HoldfastError):
    """The session cannot be resumed any more; its processes are gone or out of reach."""


class OutputLost(HoldfastError):
    """Events of this process are permanently missing, or a command's own output cannot be written."""


class SandboxUnavailable(HoldfastError):
    """The host cannot enforce the policy, and nothing was run; `fingerprint` names the cause if known."""

    def __init__(self, message: str, *, remedy: str | None = None, fingerprint: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.fingerprint = fingerprint


class StartupError(HoldfastError):
    """The server cannot begin to serve."""


class Conflict(HoldfastError):
    """Another caller was first, or used the same key for something else; nothing has changed."""


class StaleRun(Conflict):
    """The run does not hold its task any more; its reports change nothing."""


class StoreDamaged(HoldfastError):
    """The board's file is damaged; nothing is written to it until it is restored."""


class Face(NamedTuple):
    """The codes of an error outside. The exit code is the same for every command that ends with it."""

    rpc: int
    exit: int
    http: int


FACES: Final[dict[type[HoldfastError], Face]] = {
    UsageError: Face(-32602, 2, 400),
    MethodNotFound: Face(-32601, 2, 404),
    InvalidRequest: Face(-32600, 1, 400),
    PeerRefused: Face(-32600, 1, 401),
    IllegalTransition: Face(-32030, 1, 409),
    NotFound: Face(-32004, 3, 404),
    SessionAttached: Face(-32010, 75, 409),
    OperationFailed: Face(-32603, 71, 500),
    RemoteProtocolError: Face(-32600, 76, 400),
    ProtocolMismatch: Face(-32600, 76, 502),
    ConnectionLost: Face(-32000, 5, 503),
    Unreachable: Face(-32000, 5, 503),
    TokenRefused: Face(-32600, 1, 401),
    SessionLost: Face(-32000, 5, 410),
    OutputLost: Face(-32603, 74, 500),
    SandboxUnavailable: Face(-32602, 125, 503),
    StartupError: Face(-32603, 1, 500),
    Conflict: Face(-32031, 4, 409),
    StaleRun: Face(-32032, 4, 409),
    StoreDamaged: Face(-32603, 5, 503),
}

INTERNAL: Final = Face(-32603, 70, 500)


def face(exc: BaseException) -> Face:
    """The codes of `exc`; an exception that is not ours is an internal error."""
    for cls in type(exc).__mro__:
        if cls in FACES:
            return FACES[cls]
    return INTERNAL


def kind(exc: BaseException) -> str:
    """The name by which a peer of ours identifies the class of `exc`."""
    return next((cls.__name__ for cls in type(exc).__mro__ if cls in FACES), OperationFailed.__name__)


def from_kind(name: object, message: str, remedy: str | None) -> HoldfastError:
    """Recreate the other side's error; an unknown class becomes OperationFailed."""
    cls = next((cls for cls in FACES if cls.__name__ == name), OperationFailed)
    return cls(message, remedy=remedy)


_OS_CLASSES: Final[dict[int, type[HoldfastError]]] = {
    errno.ENOENT: NotFound,
    errno.EINVAL: InvalidRequest,
    errno.EACCES: InvalidRequest,
    errno.EPERM: InvalidRequest,
}


def from_os_error(exc: OSError) -> HoldfastError:
    """Convert a file-system error to the protocol's form: class by errno, text without the path."""
    cls = _OS_CLASSES.get(exc.errno or 0, OperationFailed)
    return cls(f"{exc.strerror} (os error {exc.errno})")


_STORAGE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def is_storage_fault(exc: BaseException | None) -> bool:
    """Whether the cause is a disk that is full, read-only or broken, which is no bug and may be temporary."""
    while exc is not None:
        if isinstance(exc, OSError) and exc.errno in _STORAGE:
            return True
        exc = exc.__cause__ or exc.__context__
    return False


# The reference's client treats exactly this answer as a dead link.
TRANSPORT_CLOSED: Final = (-32000, "JSON-RPC transport closed")

_RPC_CLASSES: Final[dict[int, type[HoldfastError]]] = {
    -32600: InvalidRequest,
    -32601: MethodNotFound,
    -32602: UsageError,  # also for a policy that the host cannot enforce: only our peers distinguish them
    -32004: NotFound,
    -32010: SessionAttached,
}


def from_rpc_error(code: int, message: str, data: object = None) -> HoldfastError:
    """Convert the peer's error to its class: a peer of ours names it, for others the code decides."""
    if isinstance(data, dict) and "kind" in data:
        remedy = data.get("remedy")
        return from_kind(data["kind"], message, remedy if isinstance(remedy, str) else None)
    if (code, message) == TRANSPORT_CLOSED:
        return ConnectionLost(message)
    return _RPC_CLASSES.get(code, OperationFailed)(message)
