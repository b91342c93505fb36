"""The backends that carry out a plan around a command (Linux namespaces in `confined`, bubblewrap, or
Landlock alone) and what each of them guarantees.

Imports: local, sandbox.kernel, sandbox.plan, sandbox.protocol, sandbox.reasons, sandbox.watcher.
Open to other rooms: bwrapped, bwraptool, confined, guarantees, landlocked.
"""
