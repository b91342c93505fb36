"""Holdfast runs coding agents and their commands, reports what it enforced, and loses nothing they did.

    async with holdfast.connect("ws://127.0.0.1:8765") as env:
        result = await env.run(["make", "test"])

Exported names are loaded on first use: the launcher imports this package for every command.
"""

TYPE_CHECKING = False  # to a type checker this name means True

if TYPE_CHECKING:
    from holdfast.agents.sdk import Workers as Workers
    from holdfast.client.environment import Environment as Environment
    from holdfast.client.environment import connect as connect
    from holdfast.client.environments import Environments as Environments
    from holdfast.client.events.ordering import Closed as Closed
    from holdfast.client.events.ordering import Exited as Exited
    from holdfast.client.events.ordering import Output as Output
    from holdfast.client.events.result import Result as Result
    from holdfast.client.networkfilter import NetworkFilter as NetworkFilter
    from holdfast.client.policy import Policy as Policy
    from holdfast.client.process import Process as Process
    from holdfast.direct.admission import ExecutorKey as ExecutorKey
    from holdfast.direct.host import DirectHost as DirectHost
    from holdfast.errors import ConnectionLost as ConnectionLost
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import InvalidRequest as InvalidRequest
    from holdfast.errors import NotFound as NotFound
    from holdfast.errors import OperationFailed as OperationFailed
    from holdfast.errors import OutputLost as OutputLost
    from holdfast.errors import ProtocolMismatch as ProtocolMismatch
    from holdfast.errors import SandboxUnavailable as SandboxUnavailable
    from holdfast.errors import SessionLost as SessionLost
    from holdfast.errors import TokenRefused as TokenRefused
    from holdfast.errors import Unreachable as Unreachable
    from holdfast.errors import UsageError as UsageError
    from holdfast.sandbox.limits import Limits as Limits

__version__ = "0.2.0"
DISTRIBUTION = "holdfast-agents"  # on the package index; `holdfast` there is another project

_EXPORTS = {
    "Closed": "client.events.ordering",
    "ConnectionLost": "errors",
    "DirectHost": "direct.host",
    "Environment": "client.environment",
    "Environments": "client.environments",
    "ExecutorKey": "direct.admission",
    "Exited": "client.events.ordering",
    "HoldfastError": "errors",
    "InvalidRequest": "errors",
    "Limits": "sandbox.limits",
    "NetworkFilter": "client.networkfilter",
    "NotFound": "errors",
    "OperationFailed": "errors",
    "Output": "client.events.ordering",
    "OutputLost": "errors",
    "Policy": "client.policy",
    "Process": "client.process",
    "ProtocolMismatch": "errors",
    "Result": "client.events.result",
    "SandboxUnavailable": "errors",
    "SessionLost": "errors",
    "TokenRefused": "errors",
    "Unreachable": "errors",
    "UsageError": "errors",
    "Workers": "agents.sdk",
    "connect": "client.environment",
}

__all__ = ["DISTRIBUTION", "__version__", *_EXPORTS]  # docs/reference/api.md lists them


def __getattr__(name: str) -> object:
    """PEP 562: load an exported name."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"holdfast.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
