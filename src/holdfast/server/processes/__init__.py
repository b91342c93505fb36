"""Processes of a session: start, input, numbered events, replay, the shell state that commands begin with.

Imports: confine, errors, sandbox.plan, wire.
Open to other rooms: processes.
"""
