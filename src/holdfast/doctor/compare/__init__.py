"""Compare a command plain and confined: what differs, and what that means for a worker.

Imports: confine, decoding, errors, exec, sandbox, sandbox.host, sandbox.policy, server, wire.
Open to other rooms: circumstances, compare, equivalence.
"""
