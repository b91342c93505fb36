"""The process that owns the workers of one home, its socket, and the daemons of that home: how they are
started, replaced, listed and ended.

Imports: agents.catalog, agents.changes, agents.evidence, agents.fleet, agents.worker, client, decoding,
doctor.explain, errors, home, local, sandbox.plan, sandbox.policy, unixrpc, wire.
Open to other rooms: background, daemons, elsewhere, messages, service.
"""
