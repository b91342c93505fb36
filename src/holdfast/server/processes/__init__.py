"""Processes of a session: start, input, numbered events, replay, the initial shell state of commands.

Imports: confine, decoding, egress, egress.asking, egress.keys, errors, sandbox, sandbox.plan, sandbox.policy,
wire.
Open to other rooms: commands, processes.
"""
