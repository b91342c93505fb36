"""The process that starts and owns every command. It runs on the standard library alone.

Imports: sandbox, sandbox.backends, sandbox.kernel, sandbox.plan, sandbox.protocol, sandbox.watcher.
Open to other rooms: children, launcher, spare.
"""
