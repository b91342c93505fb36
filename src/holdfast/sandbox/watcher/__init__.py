"""The process beside a command that hears of refused calls as they happen, and what it can foresee of them.

Imports: sandbox.kernel, sandbox.plan, sandbox.protocol.
Open to other rooms: foresight, listener, notifyfilter, watcher.
"""
