"""What carries out a plan around a command: Linux namespaces (`confined`), bubblewrap, Landlock alone, a
Seatbelt profile as text; and what each of them guarantees.

Imports: errors, sandbox.kernel, sandbox.plan, sandbox.policy, sandbox.protocol, sandbox.reasons,
sandbox.watcher.
Open to other rooms: bwrapped, bwraptool, confined, guarantees, landlocked.
"""
