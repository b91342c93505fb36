"""One worker: from its request (a WorkerSpec) to a confined process, how its output is parsed, what the
kernel reports about it, and what is kept of it on disk.

Imports: agents.catalog, agents.changes, agents.evidence, agents.terminal, client, client.events, confine,
decoding, doctor.compare, doctor.explain, egress, egress.bounds, errors, home, local, sandbox, sandbox.kernel,
sandbox.plan, sandbox.policy, sandbox.watcher, wire.
Open to other rooms: acp, answering, book, bridge, channels, equivalence, explaining, launching, logins,
ownfiles, ownsandbox, preflight, reach, statefiles, surroundings, worker.
"""
